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
    ptr,
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

struct Kept {
    blocks: [*mut u8; KEPT],
    next: usize,
}

// SAFETY: the blocks are owned by the ring, nobody else has their addresses but epoll.
unsafe impl Send for Kept {}

static RING: Mutex<Kept> = Mutex::new(Kept { blocks: [ptr::null_mut(); KEPT], next: 0 });

fn is_registration(layout: Layout) -> bool {
    layout.align() == ALIGN && layout.size() == SIZE
}

/// Puts a block into the ring and takes out the one that has been there longest, null if the ring is not full yet.
fn keep(block: *mut u8) -> *mut u8 {
    let mut ring = RING.lock().unwrap_or_else(PoisonError::into_inner);
    let at = ring.next;
    ring.next = (at + 1) % KEPT;
    std::mem::replace(&mut ring.blocks[at], block)
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
        let freed = if is_registration(layout) { keep(block) } else { block };
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
    use std::{
        alloc::{GlobalAlloc, Layout, System},
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::{ALIGN, KEPT, RING, SIZE, keep};

    /// Counts what the tests allocate in the layout of a registration.
    struct Counting;
    static REGISTRATIONS: AtomicUsize = AtomicUsize::new(0);
    static OTHERS: AtomicUsize = AtomicUsize::new(0);

    // SAFETY: every call goes to the system's allocator.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if layout.align() == ALIGN {
                let counter = if layout.size() == SIZE { &REGISTRATIONS } else { &OTHERS };
                counter.fetch_add(1, Ordering::Relaxed);
            }
            // SAFETY: the caller keeps the contract of `alloc`.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: the caller keeps the contract of `dealloc`.
            unsafe { System.dealloc(block, layout) }
        }
    }

    #[global_allocator]
    static COUNTING: Counting = Counting;

    /// Another version of the runtime may lay them out in another way; this says so.
    #[test]
    fn a_registration_has_the_layout_that_is_kept() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let _entered = runtime.enter();
        let before = REGISTRATIONS.load(Ordering::Relaxed);
        let pipes: Vec<_> = (0..64).map(|_| tokio::net::unix::pipe::pipe().unwrap()).collect();
        assert!(REGISTRATIONS.load(Ordering::Relaxed) - before >= 2 * pipes.len());
    }

    #[test]
    fn blocks_leave_in_the_order_in_which_they_came() {
        let layout = Layout::from_size_align(SIZE, ALIGN).unwrap();
        // SAFETY: the layout has a size.
        let block = unsafe { System.alloc(layout) };
        assert!(!block.is_null());
        let place = RING.lock().unwrap().next;
        assert!(keep(block).is_null());
        let mut left = Vec::new();
        for _ in 0..KEPT {
            left.push(keep(std::ptr::null_mut()));
        }
        assert_eq!((left.pop(), RING.lock().unwrap().next), (Some(block), (place + 1) % KEPT));
        // SAFETY: it was allocated above with this layout and has left the ring.
        unsafe { System.dealloc(block, layout) };
    }
}
