//! The allocator of the agent, which does not give memory of the runtime's I/O registrations to anything else for a long while.
//!
//! The runtime gives epoll the address of a registration as its token and trusts the token that comes back. That holds on Linux. In a
//! machine that gVisor (20240729) has restored, `epoll_wait` also reports interests that were deleted before the snapshot, if something in
//! its kernel still reached them: measured in 12 of 30 machines in which a command had just ended whose shell had started another program.
//! The runtime then follows the address of a registration that was freed, and the agent, process 1, dies. So freed registrations are kept
//! as they are, where a late event finds an idle one and does nothing.
#![expect(unsafe_code, reason = "an allocator is unsafe by its nature")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    mem, ptr,
    sync::{Mutex, PoisonError},
};

/// The runtime aligns registrations to keep them in cache lines of their own.
const ALIGN: usize = 128;
/// One registration with the counters of the `Arc` before it.
const SIZE: usize = 256;
/// How many are kept, 2 MiB of them: a command makes three.
const KEPT: usize = 8192;

/// See the module.
#[derive(Debug)]
pub(crate) struct KeepRegistrations;

/// The blocks that are kept, in a ring.
struct Kept {
    blocks: [*mut u8; KEPT],
    next: usize,
}

// SAFETY: the ring owns its blocks; nobody else has their addresses but epoll.
unsafe impl Send for Kept {}

impl Kept {
    const fn new() -> Self {
        Self { blocks: [ptr::null_mut(); KEPT], next: 0 }
    }

    /// Puts a block in and takes out the one that has been there longest; null until the ring is full.
    fn exchange(&mut self, block: *mut u8) -> *mut u8 {
        let at = self.next;
        self.next = (at + 1) % KEPT;
        mem::replace(&mut self.blocks[at], block)
    }
}

static KEPT_BLOCKS: Mutex<Kept> = Mutex::new(Kept::new());

fn is_registration(layout: Layout) -> bool {
    layout.align() == ALIGN && layout.size() == SIZE
}

// SAFETY: every call goes to the system's allocator with the layout it came with; freed blocks that look like registrations go there later,
// each once and with the same layout, since the ring holds blocks of one layout only. Nothing here allocates or panics.
unsafe impl GlobalAlloc for KeepRegistrations {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let freed = if is_registration(layout) {
            KEPT_BLOCKS.lock().unwrap_or_else(PoisonError::into_inner).exchange(block)
        } else {
            block
        };
        if !freed.is_null() {
            // SAFETY: it was allocated by `System` with this layout and is freed once: see above.
            unsafe { System.dealloc(freed, layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `realloc`. A registration is never resized.
        unsafe { System.realloc(block, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT, KEPT_BLOCKS, Kept, ptr};

    /// Another version of the runtime may lay them out in another way; this says so.
    #[test]
    fn a_registration_has_the_layout_that_is_kept() {
        const PIPES: usize = 64;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let before = KEPT_BLOCKS.lock().unwrap().next;
        {
            let _entered = runtime.enter();
            let pipes: Vec<_> = (0..PIPES).map(|_| tokio::net::unix::pipe::pipe().unwrap()).collect();
            drop(pipes);
        }
        drop(runtime);
        let kept = (KEPT_BLOCKS.lock().unwrap().next + KEPT - before) % KEPT;
        assert!(kept >= 2 * PIPES, "{kept}");
    }

    #[test]
    fn blocks_leave_in_the_order_in_which_they_came() {
        let mut kept = Box::new(Kept::new());
        let blocks: Vec<*mut u8> = (1..=KEPT + 2).map(ptr::without_provenance_mut).collect();
        let left: Vec<_> = blocks.iter().map(|block| kept.exchange(*block)).collect();
        assert!(left[..KEPT].iter().all(|block| block.is_null()));
        assert_eq!(left[KEPT..], blocks[..2]);
    }
}
