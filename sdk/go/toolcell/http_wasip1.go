package toolcell

import (
	"bytes"
	"fmt"
	"strings"
	"unsafe"
)

//go:wasmimport wasi:http/types@0.2.12 [constructor]fields
func newFields() int32

//go:wasmimport wasi:http/types@0.2.12 [method]fields.append
func appendField(fields int32, name unsafe.Pointer, size uint32, value unsafe.Pointer, valueSize uint32, returned unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [method]fields.entries
func entriesOf(fields int32, returned unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [constructor]outgoing-request
func newRequest(headers int32) int32

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-request.set-method
func setMethod(request int32, method uint32, name unsafe.Pointer, size uint32) uint32

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-request.set-scheme
func setScheme(request int32, isSome, scheme uint32, name unsafe.Pointer, size uint32) uint32

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-request.set-authority
func setAuthority(request int32, isSome uint32, text unsafe.Pointer, size uint32) uint32

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-request.set-path-with-query
func setPath(request int32, isSome uint32, text unsafe.Pointer, size uint32) uint32

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-request.body
func bodyOf(request int32, returned unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [method]outgoing-body.write
func outputOf(body int32, returned unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [static]outgoing-body.finish
func finishBody(body int32, hasTrailers uint32, trailers int32, returned unsafe.Pointer)

//go:wasmimport wasi:io/streams@0.2.12 [method]output-stream.blocking-write-and-flush
func writeAndFlush(stream int32, data unsafe.Pointer, size uint32, returned unsafe.Pointer)

//go:wasmimport wasi:io/streams@0.2.12 [resource-drop]output-stream
func dropOutput(stream int32)

//go:wasmimport wasi:http/outgoing-handler@0.2.12 handle
func handleRequest(request int32, hasOptions uint32, options int32, returned unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [method]future-incoming-response.subscribe
func subscribe(future int32) int32

//go:wasmimport wasi:io/poll@0.2.12 [method]pollable.block
func block(pollable int32)

//go:wasmimport wasi:http/types@0.2.12 [method]future-incoming-response.get
func responseOf(future int32, returned unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [method]incoming-response.status
func statusOf(response int32) uint32

//go:wasmimport wasi:http/types@0.2.12 [method]incoming-response.headers
func headersOf(response int32) int32

//go:wasmimport wasi:http/types@0.2.12 [method]incoming-response.consume
func consume(response int32, returned unsafe.Pointer)

//go:wasmimport wasi:http/types@0.2.12 [method]incoming-body.stream
func inputOf(body int32, returned unsafe.Pointer)

//go:wasmimport wasi:io/streams@0.2.12 [method]input-stream.blocking-read
func blockingRead(stream int32, size uint64, returned unsafe.Pointer)

const (
	// writtenAtOnce is the most that a stream of WASI takes, in bytes.
	writtenAtOnce = 4096
	// readAtOnce is the number of bytes that are read at once.
	readAtOnce = 65536
)

// Methods and errors of WASI in their order.
var (
	methods    = strings.Fields("GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH")
	httpErrors = strings.Fields(`DNS-timeout DNS-error destination-not-found destination-unavailable
		destination-IP-prohibited destination-IP-unroutable connection-refused connection-terminated connection-timeout
		connection-read-timeout connection-write-timeout connection-limit-reached TLS-protocol-error
		TLS-certificate-error TLS-alert-received HTTP-request-denied HTTP-request-length-required
		HTTP-request-body-size HTTP-request-method-invalid HTTP-request-URI-invalid HTTP-request-URI-too-long
		HTTP-request-header-section-size HTTP-request-header-size HTTP-request-trailer-section-size
		HTTP-request-trailer-size HTTP-response-incomplete HTTP-response-header-section-size
		HTTP-response-header-size HTTP-response-body-size HTTP-response-trailer-section-size
		HTTP-response-trailer-size HTTP-response-transfer-coding HTTP-response-content-coding HTTP-response-timeout
		HTTP-upgrade-failed HTTP-protocol-error loop-detected configuration-error internal-error`)
)

func httpError(url string, code uint8) error {
	name := "error"
	if int(code) < len(httpErrors) {
		name = httpErrors[code]
	}
	message := fmt.Sprintf("%s: %s", url, name)
	if name == "HTTP-request-denied" {
		return Denied("%s", message)
	}
	return Unavailable("%s", message)
}

func send(request Request) (Response, error) {
	scheme, rest, _ := strings.Cut(request.URL, "://")
	if scheme != "http" && scheme != "https" {
		return Response{}, Invalid("not a URL for HTTP: %s", request.URL)
	}
	rest, _, _ = strings.Cut(rest, "#")
	authority, path := rest, "/"
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		authority, path = rest[:end], rest[end:]
		if path[0] != '/' {
			path = "/" + path
		}
	}
	var given returned
	fields := newFields()
	for name, value := range request.Header {
		nameData, nameSize := passed(name)
		valueData, valueSize := passed(value)
		appendField(fields, nameData, nameSize, valueData, valueSize, given.at(0))
		if given.u8(0) != 0 {
			return Response{}, Invalid("not a header of a request: %s", name)
		}
	}
	method := uint32(0)
	for int(method) < len(methods) && methods[method] != request.Method {
		method++
	}
	secure := uint32(0)
	if scheme == "https" {
		secure = 1
	}
	outgoing := newRequest(fields)
	methodData, methodSize := passed(request.Method)
	authorityData, authoritySize := passed(authority)
	pathData, pathSize := passed(path)
	if setMethod(outgoing, method, methodData, methodSize) != 0 ||
		setScheme(outgoing, 1, secure, unsafe.Pointer(&nothing), 0) != 0 ||
		setAuthority(outgoing, 1, authorityData, authoritySize) != 0 || setPath(outgoing, 1, pathData, pathSize) != 0 {
		return Response{}, Invalid("not a URL for HTTP: %s", request.URL)
	}

	bodyOf(outgoing, given.at(0))
	body := int32(given.u32(4))
	handleRequest(outgoing, 0, 0, given.at(0))
	if given.u8(0) != 0 {
		return Response{}, httpError(request.URL, given.u8(8))
	}
	future := int32(given.u32(8))
	// A request that is refused closes its body; the answer has the reason.
	if sendBody(body, request.Body) {
		finishBody(body, 0, 0, given.at(0))
	}
	block(subscribe(future))
	responseOf(future, given.at(0))
	if given.u8(8) != 0 {
		return Response{}, Failed("%s: the response was taken already", request.URL)
	}
	if given.u8(16) != 0 {
		return Response{}, httpError(request.URL, given.u8(24))
	}
	return receive(int32(given.u32(24)), request)
}

// sendBody returns false if the body was closed before its end.
func sendBody(body int32, data []byte) bool {
	if len(data) == 0 {
		return true
	}
	var given returned
	outputOf(body, given.at(0))
	stream := int32(given.u32(4))
	for at := 0; at < len(data); at += writtenAtOnce {
		part := data[at:min(at+writtenAtOnce, len(data))]
		writeAndFlush(stream, unsafe.Pointer(&part[0]), uint32(len(part)), given.at(0))
		if given.u8(0) != 0 {
			return false
		}
	}
	dropOutput(stream)
	return true
}

func receive(incoming int32, request Request) (Response, error) {
	response := Response{Status: int(statusOf(incoming)), Header: map[string]string{}}
	var given returned
	entriesOf(headersOf(incoming), given.at(0))
	for _, entry := range list[struct{ name, value abiString }](&given) {
		response.Header[strings.ToLower(entry.name.lift())] = entry.value.lift()
	}
	consume(incoming, given.at(0))
	inputOf(int32(given.u32(4)), given.at(0))
	stream := int32(given.u32(4))
	var body bytes.Buffer
	for {
		blockingRead(stream, readAtOnce, given.at(0))
		if given.u8(0) != 0 {
			// 1: the stream has ended.
			if given.u8(4) == 1 {
				response.Body = body.Bytes()
				return response, nil
			}
			return Response{}, Unavailable("%s: the response ended early", request.URL)
		}
		body.WriteString(given.text(4))
		if body.Len() > request.MaxBody {
			return Response{}, Failed("%s: the response has more than %d bytes", request.URL, request.MaxBody)
		}
	}
}
