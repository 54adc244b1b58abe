#include "arena_bridge.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>

#include "arena_device.hpp"
#include "arena_heap.hpp"
#include "arena_run.hpp"

// The few shapes of ONNX Runtime's C interface that are needed here. Its function table only ever grows at the end,
// so a position means the same in every release that has it.
extern "C" {

struct OrtAllocator {
  std::uint32_t version;
  void* (*Alloc)(OrtAllocator*, std::size_t);
  void (*Free)(OrtAllocator*, void*);
  const void* (*Info)(const OrtAllocator*);
  void* (*Reserve)(OrtAllocator*, std::size_t);               // since 18
  void* (*GetStats)(const OrtAllocator*, void**);             // since 23, may be null
  void* (*AllocOnStream)(OrtAllocator*, std::size_t, void*);  // since 23, may be null
  void* (*Shrink)(OrtAllocator*);                             // since 25, may be null
  void* later[8];                                             // what a newer one might look for: null
};

struct OrtApiBase {
  const void* const* (*GetApi)(std::uint32_t version);
  const char* (*GetVersionString)();
};

}  // extern "C"

namespace onnxmem::arena {

namespace {

enum Slot {
  kGetErrorMessage = 2,
  kCreateEnv = 3,
  kMemoryInfo = 68,
  kCpuMemoryInfo = 69,
  kReleaseEnv = 92,
  kReleaseStatus = 93,
  kRegisterAllocator = 176,
  kUnregisterAllocator = 177,
  kCreateKeyValuePairs = 295,
  kAddKeyValuePair = 296,
};
// The oldest table that has everything above and loads libraries like this one.
constexpr std::uint32_t kTableVersion = 24;
constexpr std::uint32_t kShrinkVersion = 25;
constexpr int kDeviceAllocator = 0;  // an arena of its own kind is refused
constexpr int kDefaultMemory = 0;
constexpr int kErrorsOnly = 3;

const OrtApiBase* api_base = nullptr;
std::mutex lock;

// Kernels write to what they are given without looking, so no memory must be an exception, as it is with ONNX
// Runtime's own allocators. It passes only ONNX Runtime's C++ frames, which expect it.
void* or_throw(void* block, std::size_t size) {
  if (block == nullptr && size != 0) throw std::bad_alloc();
  return block;
}

void* alloc(OrtAllocator*, std::size_t size) { return or_throw(allocate(size), size); }
void* reserve(OrtAllocator*, std::size_t size) { return or_throw(heap().allocate(size, Large::shared), size); }
void free_block(OrtAllocator*, void* p) noexcept { release(p); }
void* statistics(const OrtAllocator*, void** answer) noexcept;
void* shrink(OrtAllocator*) noexcept {
  try {
    trim_all();
    heap().trim();
  } catch (...) {}
  return nullptr;
}

// An allocator, how to have its memory information made, and how many want it registered.
struct Enlisted : OrtAllocator {
  const void* memory = nullptr;  // never released: the allocator answers with it for ever
  Device* device = nullptr;
  int users = 0;
};

const void* info(const OrtAllocator* self) noexcept { return static_cast<const Enlisted*>(self)->memory; }

Enlisted& on_host() {
  static auto& process_wide = *new Enlisted{{.version = kTableVersion,
                                             .Alloc = alloc,
                                             .Free = free_block,
                                             .Info = info,
                                             .Reserve = reserve,
                                             .GetStats = statistics,
                                             .AllocOnStream = nullptr,
                                             .Shrink = shrink,
                                             .later = {}}};
  return process_wide;
}

Device& device_of(OrtAllocator* self) { return *static_cast<Enlisted*>(self)->device; }

void* alloc_on_device(OrtAllocator* self, std::size_t size) {
  void* block = allocate_on(device_of(self), size);
  if (block == nullptr && size != 0) throw NoDeviceMemory(size, device_of(self).number());
  return block;
}

// Weights, and whatever else lives as long as a session.
void* reserve_on_device(OrtAllocator* self, std::size_t size) {
  void* block = device_of(self).allocate(size, 0);
  if (block == nullptr && size != 0) throw NoDeviceMemory(size, device_of(self).number());
  return block;
}

void free_on_device(OrtAllocator* self, void* p) noexcept { release_on(device_of(self), p); }

void* shrink_device(OrtAllocator* self) noexcept {
  try {
    trim_all(&device_of(self));
    device_of(self).trim();
  } catch (...) {}
  return nullptr;
}

// Sessions ask for memory in the order of one stream, and each has its own: no allocation is on a stream.
Enlisted& on_device(Device& device) {
  static auto& known = *new std::map<Device*, std::unique_ptr<Enlisted>>;
  std::unique_ptr<Enlisted>& found = known[&device];
  if (!found) {
    found.reset(new Enlisted{{.version = kTableVersion,
                              .Alloc = alloc_on_device,
                              .Free = free_on_device,
                              .Info = info,
                              .Reserve = reserve_on_device,
                              .GetStats = nullptr,
                              .AllocOnStream = nullptr,
                              .Shrink = shrink_device,
                              .later = {}}});
    found->device = &device;
  }
  return *found;
}

// Calls into the table; every one of them answers with a status, null if all is well.
class Table {
 public:
  Table() : entries_(api_base != nullptr ? api_base->GetApi(kTableVersion) : nullptr) {}
  explicit operator bool() const { return entries_ != nullptr; }

  template <typename... Arguments>
  void tell(Slot slot, Arguments... arguments) const {  // for the few that answer with nothing
    reinterpret_cast<void (*)(Arguments...)>(at(slot))(arguments...);
  }

  template <typename... Arguments>
  std::string call(Slot slot, Arguments... arguments) const {
    void* status = reinterpret_cast<void* (*)(Arguments...)>(at(slot))(arguments...);
    if (status == nullptr) return {};
    std::string message = reinterpret_cast<const char* (*)(const void*)>(at(kGetErrorMessage))(status);
    reinterpret_cast<void (*)(void*)>(at(kReleaseStatus))(status);
    return message.empty() ? "ONNX Runtime gave no reason" : message;
  }

  // The process-wide environment: asking for one more returns the same, counted. It is given back at once, so that
  // it ends when ONNX Runtime's own owner lets go of it.
  template <typename Use>
  std::string with_environment(Use use) const {
    void* environment = nullptr;
    std::string problem = call(kCreateEnv, kErrorsOnly, "onnxmem", &environment);
    if (!problem.empty()) return problem;
    problem = use(environment);
    reinterpret_cast<void (*)(void*)>(at(kReleaseEnv))(environment);
    return problem;
  }

 private:
  void* at(Slot slot) const { return const_cast<void*>(entries_[slot]); }
  const void* const* entries_;
};

// ONNX Runtime's profile has the names of nodes but not which allocations are theirs. It does have the allocator's
// statistics at the end of each node, and how much they changed meanwhile: so the statistics are how far the run has
// come. Whoever profiles for himself is told nothing, as by an allocator without statistics.
void* statistics(const OrtAllocator*, void** answer) noexcept {
  const Table table;
  table.tell(kCreateKeyValuePairs, answer);
  if (const std::optional<Mark> here = mark()) {
    const auto say = [&](const char* name, std::int64_t value) {
      char digits[24];
      std::snprintf(digits, sizeof digits, "%lld", static_cast<long long>(value));
      table.tell(kAddKeyValuePair, *answer, name, static_cast<const char*>(digits));
    };
    say("InUse", here->calls);
    say("TotalAllocated", here->token);
    say("MaxInUse", here->number);
    say("NumAllocs", 1);  // without any, the rest is not looked at
  }
  return nullptr;
}

std::string describe(const Table& table, Enlisted& one) {
  if (one.memory != nullptr) return {};
  return one.device == nullptr
             ? table.call(kCpuMemoryInfo, kDeviceAllocator, kDefaultMemory, &one.memory)
             : table.call(kMemoryInfo, "Cuda", kDeviceAllocator, one.device->number(), kDefaultMemory, &one.memory);
}

std::string add(const Table& table, Enlisted& one) {
  if (std::string problem = describe(table, one); !problem.empty()) return problem;
  unsigned major = 0, minor = 0;
  if (std::sscanf(api_base->GetVersionString(), "%u.%u", &major, &minor) == 2 && (major > 1 || minor >= kShrinkVersion))
    one.version = kShrinkVersion;
  return table.with_environment(
      [&](void* environment) { return table.call(kRegisterAllocator, environment, static_cast<OrtAllocator*>(&one)); });
}

std::string enlist(Enlisted& one) {
  const Table table;
  if (!table) return "this ONNX Runtime does not offer the functions of release 1.24";
  watch_forks();
  if (one.users == 0) {
    std::string problem = add(table, one);
    if (!problem.empty()) return problem;
  }
  ++one.users;
  return {};
}

std::string withdraw(Enlisted& one) {
  const Table table;
  if (!table || one.users == 0) return {};
  --one.users;
  if (one.users > 0) return {};
  return table.with_environment(
      [&](void* environment) { return table.call(kUnregisterAllocator, environment, one.memory); });
}

}  // namespace

bool connected() { return api_base != nullptr; }

std::string enlist() {
  const std::scoped_lock guard(lock);
  return enlist(on_host());
}

std::string withdraw() {
  const std::scoped_lock guard(lock);
  return withdraw(on_host());
}

std::string enlist_device(Device& device) {
  const std::scoped_lock guard(lock);
  return enlist(on_device(device));
}

std::string withdraw_device(Device& device) {
  const std::scoped_lock guard(lock);
  return withdraw(on_device(device));
}

}  // namespace onnxmem::arena

// ONNX Runtime calls this when it loads a library of execution providers. We offer none: all we want is its table.
// It is the only way to the copy of the runtime that lives inside the Python module, which exports nothing.
extern "C" __attribute__((visibility("default"))) void* CreateEpFactories(const char*, const OrtApiBase* base,
                                                                          const void*, void**, std::size_t,
                                                                          std::size_t* count) noexcept {
  onnxmem::arena::api_base = base;
  *count = 0;
  return nullptr;
}

extern "C" __attribute__((visibility("default"))) void* ReleaseEpFactory(void*) noexcept { return nullptr; }
