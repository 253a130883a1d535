//! What an [`Abide`] does for those who know machines by their names and have no types for them: a server, a command line.

use abide_core::model::{
    Arguments, Contract, Declared, DocumentKind, Entry, InstanceId, Json, Key, Name, Start, Started,
};
use abide_kernel::{Answer, Filter, Op, Page};

use crate::client::{self, Look};
use crate::{Abide, Address, BadGraph, Client, Definition, Error, Graph, Letter, Request};

impl Abide {
    /// Makes an instance of a machine by its name that has a key and no run yet; see [`reserve`](Self::reserve).
    pub async fn reserve_named(&self, machine: Name, key: Key) -> Result<Started, Error> {
        match self.client().run(Op::Reserve(vec![(machine, key)])).await? {
            Answer::Started(each) => Ok(each.into_iter().next().ok_or(Error::Closed)??),
            _ => Err(astray()),
        }
    }

    /// Sends a signal by its name to whoever lives under the key of `start`, or starts that with the signal in its inbox;
    /// see [`signal_with_start`](Self::signal_with_start).
    pub fn signal_with_start_named(
        &self,
        start: Start,
        name: &str,
        arguments: Arguments,
    ) -> Letter<Client> {
        // The key of the start is what it is sent to.
        let to = InstanceId::default();
        self.signal_named(to, name, arguments).with_start(Ok(start))
    }

    /// Sends an update by its name, whoever knows its type.
    pub fn update_named(
        &self,
        to: impl Address,
        name: &str,
        arguments: Arguments,
    ) -> Request<Json> {
        Request::named(to, name, Ok(arguments), self.client().clone())
    }

    /// A page of what has happened to an instance after an event of its history, oldest first: `next` of one page is
    /// `after` of the following.
    pub async fn history_page(
        &self,
        id: InstanceId,
        after: u32,
        limit: usize,
    ) -> Result<Page<Entry, u32>, Error> {
        crate::history::page(&**self.store(), id, after, limit).await
    }

    /// A page of instances, each with what it waits for and whether anything can still wake it; newest first.
    pub async fn look_page(
        &self,
        filter: &Filter,
        before: Option<InstanceId>,
        limit: usize,
    ) -> Result<Page<Look>, Error> {
        client::look_page(self.client(), filter, before, limit).await
    }

    /// Makes machines known whose code runs elsewhere, with the contracts that they name.
    pub async fn declare(
        &self,
        machines: Vec<Declared>,
        contracts: Vec<Contract>,
    ) -> Result<(), Error> {
        let op = Op::Declare {
            machines,
            contracts,
        };
        self.client().run(op).await?;
        Ok(())
    }

    /// Keeps a graph in the store, in the place of an older one of its name, and makes it known: it can be started by its
    /// name, and be a step of others that are kept later.
    pub async fn keep_graph(&self, graph: &Graph) -> Result<(), Error> {
        let declared = graph.family();
        let declared = declared.iter().map(Definition::declared);
        let machines = declared.collect::<Result<_, _>>()?;
        let body = Json::of(graph.spec()).map_err(|error| Error::Mismatch {
            what: "the graph",
            problem: error.to_string(),
        })?;
        let kept = (DocumentKind::Graph, Name::new(graph.name())?, Some(body));
        let declare = Op::Declare {
            machines,
            contracts: Vec::new(),
        };
        let ops = vec![declare, Op::Keep(vec![kept])];
        self.client().run_all(ops).await?;
        Ok(())
    }

    /// The graphs that are kept, by name.
    pub async fn graphs(&self) -> Result<Vec<Graph>, Error> {
        let documents = self.store().documents(DocumentKind::Graph).await?;
        documents
            .into_iter()
            .map(|document| {
                Graph::from_json(document.body.as_str(), &[]).map_err(|bad: BadGraph| {
                    Error::Broken(format!("graph {} as it is kept: {bad}", document.name))
                })
            })
            .collect()
    }

    /// The graph that is kept under a name.
    pub async fn graph(&self, name: &str) -> Result<Option<Graph>, Error> {
        // What cannot be a name is none.
        let Ok(known) = Name::new(name) else {
            return Ok(None);
        };
        let found = self.store().document(DocumentKind::Graph, &known).await?;
        let Some(document) = found else {
            return Ok(None);
        };
        let graph = Graph::from_json(document.body.as_str(), &[]);
        graph
            .map(Some)
            .map_err(|bad| Error::Broken(format!("graph {name} as it is kept: {bad}")))
    }
}

fn astray() -> Error {
    Error::Broken("it was answered with something else".into())
}
