//! Changes of lists on servers of the newer protocol, which report them only to those that ask.

use std::time::Duration;

use rmcp::model::SubscriptionFilter;

use crate::connection::Connection;

/// The pause before a stream that has ended is opened again.
const PAUSE: Duration = Duration::from_secs(5);

/// Begins to listen for changes of the list of tools, if the server offers it and needs to be asked.
pub(crate) fn begin(connection: &mut Connection) {
    let Some(info) = connection.peer().peer_info() else { return };
    let reports_changes = info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
    if !reports_changes || info.protocol_version.has_initialize() {
        return;
    }
    let peer = connection.peer().clone();
    connection.keep(tokio::spawn(async move {
        // The notifications themselves are counted before they come here.
        while !peer.is_transport_closed() {
            match peer.listen(SubscriptionFilter::builder().tools_list_changed().build()).await {
                Ok(mut changes) => while let Ok(Some(_)) = changes.next().await {},
                // A server that does not know the request will not learn it.
                Err(rmcp::service::ServiceError::McpError(_)) => return,
                Err(_) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }));
}
