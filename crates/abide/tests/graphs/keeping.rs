//! Graphs that are kept in the store, and found there by their names.

use abide::Graph;
use abide::store::OpenOptions;

use crate::common::{Faulty, Lab};

fn graph(name: &str) -> Graph {
    Graph::builder(name).task("x").build().unwrap()
}

on_every_store! {
    async fn a_graph_is_found_by_its_name_and_no_other_is_read_for_it(lab: Lab) {
        // rule 15.1
        let store = Faulty::new(lab.store().await, |_| None);
        let abide = OpenOptions::default().on(store.clone());
        for name in ["one", "two", "three"] {
            abide.keep_graph(&graph(name)).await.unwrap();
        }
        let found = abide.graph("two").await.unwrap().unwrap();
        assert_eq!(found.spec(), graph("two").spec());
        for none in ["tw", "TWO", "", "\n"] {
            assert!(abide.graph(none).await.unwrap().is_none(), "{none:?}");
        }
        assert_eq!(store.lists(), 0, "a start of one graph does not cost what all of them do");
        let all = abide.graphs().await.unwrap();
        assert_eq!(all.iter().map(Graph::name).collect::<Vec<_>>(), ["one", "three", "two"]);
        assert_eq!(store.lists(), 1);
        abide.close().await;
    }
}
