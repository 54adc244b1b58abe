// To be preloaded: calls for memory that fail on request, as on a system that has none left.
//
// Counted are calls from one library, found by a part of its name, or, without a name, all that ask for much at once.
// Not `new` of a few dozen bytes: what binds our library to Python, which is a part of it, ends the process then.
// `unmaps`: an mremap that fails has unmapped its target before, as the kernel may.
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

constexpr std::size_t kMuch = std::size_t{32} << 10, kDozens = 64;

std::atomic<long> counted{0}, fail_at{0};
std::uintptr_t first = 0, last = 0;
bool everybody = false, unmaps = false, armed = false;
thread_local bool inside = false;

struct Wanted {
  const char* name;
  bool found;
};

int look(dl_phdr_info* info, std::size_t, void* data) {
  auto* wanted = static_cast<Wanted*>(data);
  if (std::strstr(info->dlpi_name, wanted->name) == nullptr) return 0;
  first = UINTPTR_MAX, last = 0;
  for (int k = 0; k < info->dlpi_phnum; ++k) {
    if (info->dlpi_phdr[k].p_type != PT_LOAD) continue;
    const std::uintptr_t start = info->dlpi_addr + info->dlpi_phdr[k].p_vaddr;
    if (start < first) first = start;
    if (start + info->dlpi_phdr[k].p_memsz > last) last = start + info->dlpi_phdr[k].p_memsz;
  }
  wanted->found = true;
  return 1;
}

bool fails(const void* caller, std::size_t bytes) {
  if (!armed || inside) return false;
  const auto at = reinterpret_cast<std::uintptr_t>(caller);
  if (everybody ? bytes < kMuch : at < first || at >= last) return false;
  return ++counted == fail_at;
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

// Let the n-th call fail from now on; 0: none, and only count. False if there is no such library.
int failing_calls_arm(const char* library, long n, int target_is_unmapped) {
  Wanted wanted{library, false};
  everybody = *library == '\0';
  if (!everybody) dl_iterate_phdr(look, &wanted);
  counted = 0, fail_at = n, unmaps = target_is_unmapped != 0;
  armed = everybody || wanted.found;
  return armed;
}

long failing_calls_count() { return counted; }

void failing_calls_disarm() { armed = false; }

void* mmap(void* address, std::size_t bytes, int access, int kind, int file, off_t offset) noexcept {
  static auto* real = next<void*(void*, std::size_t, int, int, int, off_t)>("mmap");
  if (fails(__builtin_return_address(0), bytes)) return errno = ENOMEM, MAP_FAILED;
  return real(address, bytes, access, kind, file, offset);
}

void* mremap(void* address, std::size_t from, std::size_t to, int flags, ...) noexcept {
  static auto* real = next<void*(void*, std::size_t, std::size_t, int, void*)>("mremap");
  va_list rest;
  va_start(rest, flags);
  void* target = flags & MREMAP_FIXED ? va_arg(rest, void*) : nullptr;
  va_end(rest);
  if (fails(__builtin_return_address(0), to)) {
    if (unmaps && target != nullptr) munmap(target, to);
    return errno = ENOMEM, MAP_FAILED;
  }
  return real(address, from, to, flags, target);
}

int madvise(void* address, std::size_t bytes, int advice) noexcept {
  static auto* real = next<int(void*, std::size_t, int)>("madvise");
  if (fails(__builtin_return_address(0), bytes)) return errno = ENOMEM, -1;
  return real(address, bytes, advice);
}

void* malloc(std::size_t bytes) noexcept {
  static thread_local bool looking = false;
  static void* (*real)(std::size_t) = nullptr;
  if (real == nullptr) {
    if (looking) return nullptr;
    looking = true;
    real = next<void*(std::size_t)>("malloc");
    looking = false;
  }
  if (fails(__builtin_return_address(0), bytes)) return errno = ENOMEM, nullptr;
  return real(bytes);
}
}

void* operator new(std::size_t bytes) {
  if (bytes > kDozens && fails(__builtin_return_address(0), bytes)) throw std::bad_alloc();
  inside = true;  // what it takes from malloc is not another call
  void* block = malloc(bytes);
  inside = false;
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void operator delete(void* block) noexcept { free(block); }
void operator delete(void* block, std::size_t) noexcept { free(block); }
