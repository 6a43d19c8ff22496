//! Sockets and name look-ups: importable, because the standard libraries of most languages import them, and always
//! denied. Each attempt is recorded in the receipt.

use wasmtime::component::{HasData, Linker, Resource};
use wasmtime_wasi::p2::bindings::sockets::network::{self, ErrorCode, IpAddress, IpAddressFamily, Network};
use wasmtime_wasi::p2::bindings::sockets::{ip_name_lookup, tcp, tcp_create_socket, udp, udp_create_socket};
use wasmtime_wasi::p2::{DynPollable, SocketError, SocketResult};

use crate::cell::receipt::ReceiptRecorder;

/// Maximum length of a recorded host name, in bytes; DNS names have at most 253.
const MAX_NOTED_NAME: usize = 253;

/// Denies operations and records them in the receipt.
pub(crate) struct Denied<'a> {
    pub(crate) recorder: &'a ReceiptRecorder,
}

struct HasDenied;

impl HasData for HasDenied {
    type Data<'a> = Denied<'a>;
}

/// Replaces the interfaces that create sockets and look up names. The linker must allow shadowing.
pub(crate) fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    denied: fn(&mut T) -> Denied<'_>,
) -> wasmtime::Result<()> {
    tcp_create_socket::add_to_linker::<_, HasDenied>(linker, denied)?;
    udp_create_socket::add_to_linker::<_, HasDenied>(linker, denied)?;
    ip_name_lookup::add_to_linker::<_, HasDenied>(linker, denied)
}

fn refuse<T>() -> SocketResult<T> {
    Err(ErrorCode::AccessDenied.into())
}

fn family(family: IpAddressFamily) -> &'static str {
    match family {
        IpAddressFamily::Ipv4 => "ipv4",
        IpAddressFamily::Ipv6 => "ipv6",
    }
}

/// The other interfaces depend on this one, which is unchanged.
impl network::Host for Denied<'_> {
    fn convert_error_code(&mut self, error: SocketError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    fn network_error_code(
        &mut self,
        _error: Resource<wasmtime_wasi::p2::IoError>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        Ok(None)
    }
}

impl network::HostNetwork for Denied<'_> {
    fn drop(&mut self, _network: Resource<Network>) -> wasmtime::Result<()> {
        Ok(())
    }
}

impl tcp_create_socket::Host for Denied<'_> {
    fn create_tcp_socket(&mut self, of: IpAddressFamily) -> SocketResult<Resource<tcp::TcpSocket>> {
        self.recorder
            .denial("socket", format!("tcp over {}", family(of)), None);
        refuse()
    }
}

impl udp_create_socket::Host for Denied<'_> {
    async fn create_udp_socket(&mut self, of: IpAddressFamily) -> SocketResult<Resource<udp::UdpSocket>> {
        self.recorder
            .denial("socket", format!("udp over {}", family(of)), None);
        refuse()
    }
}

impl ip_name_lookup::Host for Denied<'_> {
    fn resolve_addresses(
        &mut self,
        _network: Resource<Network>,
        name: String,
    ) -> Result<Resource<ip_name_lookup::ResolveAddressStream>, SocketError> {
        // A copy, because a text truncated in place keeps its capacity.
        let name = name[..name.floor_char_boundary(MAX_NOTED_NAME)].to_owned();
        self.recorder.denial("dns", name, None);
        refuse()
    }
}

/// No such stream exists. A guest can only call these with a forged handle, which the engine rejects first.
impl ip_name_lookup::HostResolveAddressStream for Denied<'_> {
    fn resolve_next_address(
        &mut self,
        _stream: Resource<ip_name_lookup::ResolveAddressStream>,
    ) -> Result<Option<IpAddress>, SocketError> {
        refuse()
    }

    fn subscribe(
        &mut self,
        _stream: Resource<ip_name_lookup::ResolveAddressStream>,
    ) -> wasmtime::Result<Resource<DynPollable>> {
        Err(wasmtime::Error::msg("the stream does not exist"))
    }

    fn drop(&mut self, _stream: Resource<ip_name_lookup::ResolveAddressStream>) -> wasmtime::Result<()> {
        Ok(())
    }
}
