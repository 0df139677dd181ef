//! Description of a host: its pCPUs, the domains, and their vCPUs.

use crate::{DomainId, PcpuId, PcpuSet, VcpuId};
use thiserror::Error;

/// The weight of a domain without a configured one.
pub const DEFAULT_WEIGHT: u32 = 256;

/// A guest, as its toolstack configures it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Domain {
    /// Its share relative to the others'. Xen accepts 1 to 65535.
    pub weight: u32,
    /// The most CPU time it may use, in percent of one pCPU, over all its
    /// vCPUs; 0 is no cap.
    pub cap: u32,
}

impl Default for Domain {
    fn default() -> Self {
        Self {
            weight: DEFAULT_WEIGHT,
            cap: 0,
        }
    }
}

/// A vCPU and where it may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vcpu {
    /// The domain that it belongs to.
    pub domain: DomainId,
    /// The pCPUs that it may run on (Xen's hard affinity).
    pub affinity: PcpuSet,
    /// The pCPU whose run queue it starts on.
    pub home: PcpuId,
}

/// A host that no scheduler can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HostError {
    /// Zero pCPUs, or more than [`PcpuSet::CAPACITY`].
    #[error("a host has 1 to {most} pCPUs, not {0}", most = PcpuSet::CAPACITY)]
    Pcpus(u32),
    /// A weight outside 1 to 65535.
    #[error("a weight is 1 to 65535, not {0}")]
    Weight(u32),
    /// A vCPU of a domain that was not added.
    #[error("domain {0} does not exist")]
    Domain(u32),
    /// A vCPU that may run on no pCPU of this host.
    #[error("vCPU {0} may run on no pCPU of the host")]
    Affinity(u32),
}

/// The hardware and who shares it. Passive data: schedulers are made from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    pcpus: u32,
    domains: Vec<Domain>,
    vcpus: Vec<Vcpu>,
}

impl Host {
    /// Returns a host of `pcpus` equal pCPUs (one thread a core, one socket).
    pub fn new(pcpus: u32) -> Result<Self, HostError> {
        if pcpus == 0 || pcpus > PcpuSet::CAPACITY {
            return Err(HostError::Pcpus(pcpus));
        }
        Ok(Self {
            pcpus,
            domains: Vec::new(),
            vcpus: Vec::new(),
        })
    }

    /// Adds a domain without vCPUs.
    pub fn add_domain(&mut self, domain: Domain) -> Result<DomainId, HostError> {
        if !(1..=65_535).contains(&domain.weight) {
            return Err(HostError::Weight(domain.weight));
        }
        let id = DomainId(self.domains.len() as u32);
        self.domains.push(domain);
        Ok(id)
    }

    /// Adds a vCPU that may run anywhere.
    pub fn add_vcpu(&mut self, domain: DomainId) -> Result<VcpuId, HostError> {
        self.add_pinned_vcpu(domain, self.all_pcpus())
    }

    /// Adds a vCPU that may run on `affinity` only. It starts on the run queue
    /// of the allowed pCPU that is home to the fewest vCPUs so far.
    pub fn add_pinned_vcpu(
        &mut self,
        domain: DomainId,
        affinity: PcpuSet,
    ) -> Result<VcpuId, HostError> {
        if domain.index() >= self.domains.len() {
            return Err(HostError::Domain(domain.0));
        }
        let id = VcpuId(self.vcpus.len() as u32);
        let affinity = affinity.and(&self.all_pcpus());
        let homed = |pcpu| self.vcpus.iter().filter(|vcpu| vcpu.home == pcpu).count();
        let home = affinity
            .iter()
            .min_by_key(|&pcpu| homed(pcpu))
            .ok_or(HostError::Affinity(id.0))?;
        self.vcpus.push(Vcpu {
            domain,
            affinity,
            home,
        });
        Ok(id)
    }

    /// Returns the number of pCPUs.
    pub fn pcpus(&self) -> u32 {
        self.pcpus
    }
    /// Returns all pCPUs.
    pub fn all_pcpus(&self) -> PcpuSet {
        PcpuSet::first(self.pcpus)
    }
    /// Returns the domains, in the order they were added.
    pub fn domains(&self) -> &[Domain] {
        &self.domains
    }
    /// Returns the vCPUs, in the order they were added.
    pub fn vcpus(&self) -> &[Vcpu] {
        &self.vcpus
    }
}
