//! Resources: data that clients read by its URI. A component has them in addition to its tools.
//!
//! ```
//! use toolcell_sdk::resources::{Resource, Resources, Template};
//! use toolcell_sdk::{Context, Output, Result, ToolError};
//!
//! /// Pages of a manual.
//! struct Manual;
//!
//! impl Resources for Manual {
//!     fn list() -> Vec<Resource> {
//!         vec![Resource::new("manual:/start", "start").media_type("text/markdown")]
//!     }
//!
//!     fn templates() -> Vec<Template> {
//!         vec![Template::new("manual:/pages/{page}", "page").values("page", ["one", "two"])]
//!     }
//!
//!     fn read(uri: &str, _: &Context) -> Result<Output> {
//!         match uri.strip_prefix("manual:/") {
//!             Some("start") => Ok(Output::new().text("# Start")),
//!             Some("pages/one") => Ok(Output::new().text("The first page.")),
//!             _ => Err(ToolError::invalid("there is no such page")),
//!         }
//!     }
//! }
//!
//! toolcell_sdk::export_resources!(Manual);
//! # fn main() {
//! # assert_eq!(Manual::read("manual:/start", &Context::default()).unwrap().to_text(), "# Start");
//! # }
//! ```

use std::marker::PhantomData;

use crate::generated::resources::exports::toolcell::tool::resources as wire;
use crate::{Context, Output, Result};

/// Resources of a component, exported with [`export_resources!`](crate::export_resources).
pub trait Resources {
    /// Returns the resources with a known URI. The host calls this when it begins to offer them, with nothing granted.
    fn list() -> Vec<Resource>;

    /// Returns the families of resources, as [`list`](Self::list).
    fn templates() -> Vec<Template> {
        Vec::new()
    }

    /// Reads a resource that is listed or fits a template, in an instance of its own and with what the policy grants. The structured
    /// value of the result is not used.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArguments`](crate::ErrorKind::InvalidArguments) if there is no such resource, others if it cannot be read.
    fn read(uri: &str, context: &Context) -> Result<Output>;
}

/// Description of a resource.
#[derive(Debug, Clone)]
pub struct Resource(wire::ResourceInfo);

impl Resource {
    /// Creates a description from a URI and a name, such as that of a file.
    pub fn new(uri: impl Into<String>, name: impl Into<String>) -> Self {
        Self(wire::ResourceInfo {
            uri: uri.into(),
            name: name.into(),
            title: None,
            description: None,
            media_type: None,
            size: None,
            annotations: Vec::new(),
        })
    }

    /// Sets the display name.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.0.title = Some(title.into());
        self
    }

    /// Sets the description for the model.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.0.description = Some(description.into());
        self
    }

    /// Sets the media type.
    #[must_use]
    pub fn media_type(mut self, media_type: impl Into<String>) -> Self {
        self.0.media_type = Some(media_type.into());
        self
    }

    /// Sets the size in bytes.
    #[must_use]
    pub fn size(mut self, size: u64) -> Self {
        self.0.size = Some(size);
        self
    }
}

/// Description of a family of resources.
#[derive(Debug, Clone)]
pub struct Template(wire::TemplateInfo);

impl Template {
    /// Creates a description from a name and a template such as `notes:/{year}/{+path}`: `{year}` is one segment, `{+path}` may
    /// contain several.
    pub fn new(template: impl Into<String>, name: impl Into<String>) -> Self {
        Self(wire::TemplateInfo {
            uri_template: template.into(),
            name: name.into(),
            title: None,
            description: None,
            media_type: None,
            variables: Vec::new(),
            annotations: Vec::new(),
        })
    }

    /// Sets the display name.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.0.title = Some(title.into());
        self
    }

    /// Sets the description for the model.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.0.description = Some(description.into());
        self
    }

    /// Sets the media type of all of them.
    #[must_use]
    pub fn media_type(mut self, media_type: impl Into<String>) -> Self {
        self.0.media_type = Some(media_type.into());
        self
    }

    /// Adds values of a variable that clients can suggest.
    #[must_use]
    pub fn values<T: Into<String>>(
        mut self,
        variable: impl Into<String>,
        values: impl IntoIterator<Item = T>,
    ) -> Self {
        self.0.variables.push(wire::Variable {
            name: variable.into(),
            values: values.into_iter().map(Into::into).collect(),
        });
        self
    }
}

/// Exports resources. Once per crate, which also has tools, with [`export!`](crate::export).
///
/// See [`resources`](mod@crate::resources) for an example.
#[macro_export]
macro_rules! export_resources {
    ($resources:ty) => {
        #[allow(unsafe_code, non_local_definitions)]
        const _: () = {
            // Defined in the root of the crate, where a second one is an error.
            #[doc(hidden)]
            #[macro_export]
            macro_rules! one_type_has_all_resources {
                () => {};
            }

            type Component = $crate::resources::Exported<$resources>;

            #[cfg(target_family = "wasm")]
            $crate::generated::resources::__export_resource_provider!(Component with_types_in $crate::generated::resources);
            #[cfg(not(target_family = "wasm"))]
            const _: ::std::marker::PhantomData<Component> = ::std::marker::PhantomData;
        };
    };
}

/// Implementation of the WIT contract by resources.
#[derive(Debug)]
pub struct Exported<R>(PhantomData<R>);

impl<R: Resources> wire::Guest for Exported<R> {
    fn list() -> wire::Listing {
        wire::Listing {
            resources: R::list().into_iter().map(|resource| resource.0).collect(),
            templates: R::templates().into_iter().map(|template| template.0).collect(),
        }
    }

    fn read(request: wire::Request) -> Result<Vec<wire::Content>, wire::ToolError> {
        let context = Context::received(request.id, request.context);
        let output = R::read(&request.uri, &context)?;
        Ok(output.content.into_iter().map(Into::into).collect())
    }
}
