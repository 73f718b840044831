use std::fmt;
use std::sync::Arc;

use mongodb::event::EventHandler;
use mongodb::options::ClientOptions;

use super::reachability::Reachability;

/// What the driver reports about a client of your own: its servers, connections and log-ins. It is made by
/// [`LockProvider::observe`](crate::LockProvider::observe) and given to
/// [`LockProviderBuilder::observation`](crate::LockProviderBuilder::observation).
///
/// Clones share what is reported. It belongs to the one client that is made from the prepared options: if it is given to
/// a provider on another client, the errors of that provider name the wrong cause.
#[derive(Clone)]
#[must_use = "errors are clear only if a builder gets the observation"]
pub struct ClientObservation(Arc<Reachability>);

impl ClientObservation {
    /// Observes the client that is made from these options. Handlers that the application has set are called as well.
    pub(crate) fn begin(options: &mut ClientOptions) -> Self {
        Self::observe(options, None)
    }

    /// [`Self::begin`] for a client that is made from this connection string: its hosts must belong to one replica set.
    pub(crate) fn of_string(uri: &str, options: &mut ClientOptions) -> Self {
        Self::observe(options, Some(uri))
    }

    fn observe(options: &mut ClientOptions, uri: Option<&str>) -> Self {
        let reachability = Arc::new(Reachability::observed(options, uri));
        let (servers, connections) = (Arc::clone(&reachability), Arc::clone(&reachability));
        let next = options.sdam_event_handler.take();
        options.sdam_event_handler = Some(before(next, move |event| servers.note(event)));
        let next = options.cmap_event_handler.take();
        options.cmap_event_handler = Some(before(next, move |event| connections.note_connection(event)));
        reachability.settle();
        Self(reachability)
    }

    pub(crate) fn reachability(&self) -> &Arc<Reachability> {
        &self.0
    }
}

impl fmt::Debug for ClientObservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientObservation").finish_non_exhaustive()
    }
}

/// A handler that notes each event and then passes it on to the handler of the application.
fn before<T: Send + Sync + 'static>(
    next: Option<EventHandler<T>>,
    note: impl Fn(&T) + Send + Sync + 'static,
) -> EventHandler<T> {
    EventHandler::callback(move |event| {
        note(&event);
        pass_on(next.as_ref(), event);
    })
}

/// Calls a handler as the driver does, which calls this function in its own runtime.
fn pass_on<T: Send + 'static>(handler: Option<&EventHandler<T>>, event: T) {
    match handler {
        Some(EventHandler::Callback(callback)) => callback(event),
        Some(EventHandler::AsyncCallback(callback)) => drop(tokio::spawn(callback(event))),
        Some(EventHandler::TokioMpsc(sender)) => {
            let sender = sender.clone();
            tokio::spawn(async move {
                let _ = sender.send(event).await;
            });
        }
        // The driver may add kinds of handlers, which only the driver can call.
        Some(_) | None => {}
    }
}
