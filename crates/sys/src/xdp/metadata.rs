//! Requests to the NIC for a frame, in the bytes before it (`struct xsk_tx_metadata`, since Linux
//! 6.8): here only its launch time, since 6.14.

/// Space for the metadata before the frame, in bytes: the kernel's `tx_metadata_len`.
pub(super) const LEN: usize = 24;

/// `XDP_UMEM_TX_METADATA_LEN`: the memory has space for it before every frame.
pub(super) const UMEM_FLAG: u32 = 1 << 2;

/// `XDP_TX_METADATA`, in a descriptor's options: this frame has it.
pub(super) const DESCRIPTOR_FLAG: u32 = 1 << 1;

/// `XDP_TXMD_FLAGS_LAUNCH_TIME`.
const LAUNCH_TIME: u64 = 1 << 2;

/// Makes a request to launch a frame at `time`, in nanoseconds of the NIC's own clock.
///
/// The fields are the flags, 64 bits; the checksum's two places, 16 bits each, unused; 32 bits of
/// padding; the time, 64 bits.
pub(super) fn launch_at(time: u64) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..8].copy_from_slice(&LAUNCH_TIME.to_ne_bytes());
    bytes[16..].copy_from_slice(&time.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// The struct in `linux/if_xdp.h` of Linux 6.14, without the union's other member, which is
    /// shorter.
    #[repr(C)]
    struct XskTxMetadata {
        flags: u64,
        csum_start: u16,
        csum_offset: u16,
        launch_time: u64,
    }

    #[test]
    fn the_layout_is_the_kernels() {
        assert_eq!(LEN, size_of::<XskTxMetadata>());
        // The kernel takes multiples of 8 below 256 (xdp_umem_reg).
        assert!(LEN.is_multiple_of(8) && LEN < 256);
        let bytes = launch_at(0x0102_0304_0506_0708);
        let flags = offset_of!(XskTxMetadata, flags);
        assert_eq!(bytes[flags..flags + 8], 4_u64.to_ne_bytes());
        let time = offset_of!(XskTxMetadata, launch_time);
        assert_eq!(
            bytes[time..time + 8],
            0x0102_0304_0506_0708_u64.to_ne_bytes()
        );
        let places = offset_of!(XskTxMetadata, csum_start)..time;
        assert!(bytes[places].iter().all(|byte| *byte == 0));
        assert_eq!(offset_of!(XskTxMetadata, csum_offset), 10);
    }
}
