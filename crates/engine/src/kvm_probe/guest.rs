//! The probe's guest: 64-bit code on one identity-mapped page table.
#![expect(unsafe_code, reason = "guest memory is shared with the kernel through a raw mapping")]

use std::{io, ptr::NonNull, slice};

use kvm_bindings::{
    KVM_MAX_CPUID_ENTRIES, kvm_regs, kvm_segment, kvm_sregs, kvm_userspace_memory_region as MemoryRegion,
};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Guest memory in bytes; one large page maps it.
const MEMORY: usize = 2 * 1024 * 1024;
const PML4: u64 = 0x1000;
const PDPT: u64 = 0x2000;
const PAGE_DIRECTORY: u64 = 0x3000;
const CODE: u64 = 0x4000;
/// 512 bytes for `FXSAVE`, then from [`PAIR`] on the operands.
const DATA: u64 = 0x5000;
const PAIR: u64 = DATA + 0x400;
const SUM: u64 = DATA + 0x410;
const STACK: u64 = 0x8000;
const LOW: u64 = 0x1122_3344;
const HIGH: u64 = 0x5566_7788;

const CODE_BYTES: [u8; 33] = [
    0x0f, 0xae, 0x07, // fxsave [rdi]
    0xf0, 0x48, 0x0f, 0xc7, 0x8f, 0x00, 0x04, 0x00, 0x00, // lock cmpxchg16b [rdi+0x400]
    0x66, 0x0f, 0x6f, 0x87, 0x00, 0x04, 0x00, 0x00, // movdqa xmm0, [rdi+0x400]
    0x66, 0x0f, 0xd4, 0xc0, // paddq xmm0, xmm0
    0x66, 0x0f, 0x7f, 0x87, 0x10, 0x04, 0x00, 0x00, // movdqa [rdi+0x410], xmm0
    0xf4, // hlt
];

/// How the guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GuestEnd {
    Halted { correct: bool },
    InternalError { suberror: u32 },
    Other { exit: String },
}

/// Runs the guest to its first exit.
pub(super) fn run() -> io::Result<GuestEnd> {
    let kvm = Kvm::new().map_err(from_errno)?;
    let mut memory = Memory::new()?;
    memory.load();
    let vm = kvm.create_vm().map_err(from_errno)?;
    memory.give_to(&vm)?;
    let mut vcpu = vm.create_vcpu(0).map_err(from_errno)?;
    let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(from_errno)?;
    vcpu.set_cpuid2(&cpuid).map_err(from_errno)?;
    set_registers(&vcpu).map_err(from_errno)?;
    let exit = match vcpu.run() {
        Ok(VcpuExit::Hlt) => return Ok(GuestEnd::Halted { correct: memory.holds_results() }),
        Ok(VcpuExit::InternalError) => None,
        Ok(other) => Some(format!("{other:?}")),
        Err(error) => return Err(from_errno(error)),
    };
    Ok(exit.map_or_else(|| GuestEnd::InternalError { suberror: suberror(&mut vcpu) }, |exit| GuestEnd::Other { exit }))
}

fn from_errno(error: kvm_ioctls::Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}

fn suberror(vcpu: &mut VcpuFd) -> u32 {
    let run = vcpu.get_kvm_run();
    // SAFETY: the last exit was KVM_EXIT_INTERNAL_ERROR, for which the kernel fills this member of the union.
    unsafe { run.__bindgen_anon_1.internal.suberror }
}

fn set_registers(vcpu: &VcpuFd) -> Result<(), kvm_ioctls::Error> {
    let mut special = vcpu.get_sregs()?;
    enter_long_mode(&mut special);
    vcpu.set_sregs(&special)?;
    // cmpxchg16b compares with rdx:rax (zero, as the memory is) and stores rcx:rbx.
    let regs = kvm_regs { rip: CODE, rsp: STACK, rflags: 2, rdi: DATA, rbx: LOW, rcx: HIGH, ..Default::default() };
    vcpu.set_regs(&regs)
}

fn enter_long_mode(special: &mut kvm_sregs) {
    special.cr3 = PML4;
    // PAE, OSFXSR, OSXMMEXCPT
    special.cr4 = 1 << 5 | 1 << 9 | 1 << 10;
    // PE, MP, ET, NE, PG
    special.cr0 = 1 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 31;
    // LME, LMA
    special.efer = 1 << 8 | 1 << 10;
    let segment = kvm_segment { limit: u32::MAX, present: 1, s: 1, g: 1, ..Default::default() };
    special.cs = kvm_segment { selector: 8, type_: 11, l: 1, ..segment };
    let data = kvm_segment { selector: 16, type_: 3, db: 1, ..segment };
    (special.ds, special.es, special.ss, special.fs, special.gs) = (data, data, data, data, data);
}

/// The guest's memory, zero at first.
struct Memory {
    start: NonNull<u8>,
}

impl Memory {
    fn new() -> io::Result<Self> {
        // SAFETY: a fresh private mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), MEMORY, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("memory at address zero"))?;
        Ok(Self { start })
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is MEMORY bytes, initialised by the kernel and ours; no vCPU runs while the slice lives, since the
        // only one is run by this thread, in `run`.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), MEMORY) }
    }

    fn put(&mut self, address: u64, bytes: &[u8]) {
        let start = usize::try_from(address).expect("guest addresses are below 2 MiB");
        self.bytes()[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn word(&mut self, address: u64) -> u64 {
        let start = usize::try_from(address).expect("guest addresses are below 2 MiB");
        let word = self.bytes()[start..].first_chunk().expect("guest addresses end before the memory does");
        u64::from_le_bytes(*word)
    }

    fn load(&mut self) {
        // Present and writable; the last also "large page".
        self.put(PML4, &(PDPT | 0b11).to_le_bytes());
        self.put(PDPT, &(PAGE_DIRECTORY | 0b11).to_le_bytes());
        self.put(PAGE_DIRECTORY, &(1_u64 << 7 | 0b11).to_le_bytes());
        self.put(CODE, &CODE_BYTES);
    }

    fn holds_results(&mut self) -> bool {
        self.word(PAIR) == LOW
            && self.word(PAIR + 8) == HIGH
            && self.word(SUM) == 2 * LOW
            && self.word(SUM + 8) == 2 * HIGH
    }

    fn give_to(&self, vm: &VmFd) -> io::Result<()> {
        let region = MemoryRegion {
            slot: 0,
            flags: 0,
            guest_phys_addr: 0,
            memory_size: MEMORY as u64,
            userspace_addr: self.start.as_ptr().addr() as u64,
        };
        // SAFETY: the mapping is valid for its whole size and outlives `vm`: `run` makes it first and so drops it last.
        unsafe { vm.set_user_memory_region(region) }.map_err(from_errno)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more; see `give_to`.
        if let Err(error) = unsafe { munmap(self.start.as_ptr().cast(), MEMORY) } {
            tracing::warn!(%error, "the memory of the KVM probe's guest could not be given back");
        }
    }
}
