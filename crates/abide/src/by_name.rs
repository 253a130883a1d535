//! The functions of [`Abide`] for callers without Rust types: a server, a command line.

use abide_core::model::{Contract, Declared, DocumentKind, Entry, InstanceId, Json, Name};
use abide_kernel::{Filter, Op, Page};

use crate::client::{self, Description};
use crate::graph::BadGraph;
use crate::machine::Definition;
use crate::{Abide, Error, Graph};

impl Abide {
    /// Returns a page of the history events of an instance that follow the event `after`, oldest first. Pass `next` of
    /// one page as `after` of the following one.
    pub async fn history_page(
        &self,
        id: InstanceId,
        after: u32,
        limit: usize,
    ) -> Result<Page<Entry, u32>, Error> {
        crate::history::page(&**self.store(), id, after, limit).await
    }

    /// Returns a page of instances, newest first, each with what it waits for and whether anything can still wake it.
    pub async fn describe_page(
        &self,
        filter: &Filter,
        before: Option<InstanceId>,
        limit: usize,
    ) -> Result<Page<Description>, Error> {
        client::describe_page(self.client(), filter, before, limit).await
    }

    /// Declares machines whose code runs elsewhere, together with the contracts that they name.
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

    /// Stores a graph, replacing an older one of the same name, and declares it. From then on it can be started by its
    /// name, and be a step of graphs that are stored later.
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

    /// Returns the stored graphs, ordered by name.
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

    /// Returns the graph that is stored under a name, or `None` if there is none.
    pub async fn graph(&self, name: &str) -> Result<Option<Graph>, Error> {
        // An invalid name cannot be that of a stored graph.
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
