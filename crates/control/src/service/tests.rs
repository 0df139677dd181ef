use super::*;
use crate::ledger::{Command, Snapshot};
use tailbound_client::NewTenant;
use tailbound_placement::{Policy, Spec};

pub(crate) const TREE: &str = r#"
    frame = "1538B"
    [[group]]
    name = "rack"
    uplink = { rate = "40Gbit/s", buffer = "500KB" }
    [[host]]
    name = "host"
    group = "rack"
    count = 3
    slots = 8
    uplink = { rate = "10Gbit/s", buffer = "300KB", up_buffer = "250KB" }
"#;

/// A store in memory that fails when told to.
#[derive(Default)]
struct Memory {
    kept: Snapshot,
}

impl Store for Memory {
    fn load(&mut self) -> Result<Snapshot, StoreError> {
        Ok(self.kept.clone())
    }

    fn commit(&mut self, changes: &[Change]) -> Result<u64, StoreError> {
        self.kept.apply(changes);
        self.kept.revision += 1;
        Ok(self.kept.revision)
    }
}

fn create(name: &str, vms: u32) -> Call {
    Call {
        owner: None,
        key: None,
        fingerprint: [0; 32],
        command: Command::Create(NewTenant {
            name: name.to_owned(),
            owner: Some("acme".to_owned()),
            vms,
            guarantee: None,
            cpu: 0,
            memory: tailbound_units::Bytes::ZERO,
            domains: None,
        }),
    }
}

#[tokio::test]
async fn a_tenant_is_there_once_its_creation_is_answered() {
    let (ledger, changes) = Ledger::new(Spec::from_toml(TREE).unwrap(), Policy::Silo).unwrap();
    let mut store = Memory::default();
    store.commit(&changes).unwrap();
    let service = Service::start(ledger, |_| {});
    assert_eq!(
        service.call(create("web", 3)).await,
        Err(ServiceError::NotLeader)
    );
    let on_end: OnEnd = Box::new(|error| panic!("{error}"));
    service.lead(Box::new(store), on_end).await.unwrap();
    let mut watched = service.watch_host("host-1");
    let reply = service.call(create("web", 3)).await.unwrap();
    let Reply::Tenant(tenant) = reply else {
        panic!("{reply:?}")
    };
    let found = service.read(|ledger| ledger.tenant(tenant.id).cloned());
    assert_eq!(found, Some(tenant));
    assert!(watched.has_changed().unwrap());
    assert_eq!(*watched.borrow_and_update(), 2);
}
