// A CUDA driver for machines without a GPU: the memory of its devices is the host's, behind the driver's own functions.
//
// Its streams lag on purpose. What is queued on them is done only when somebody waits, and then in an order that keeps
// each stream's and is otherwise random. So a place that is used again before its device is done with it shows: a check
// on one stream finds what another one wrote, or memory that is not there any more. Device 0 has virtual memory, device
// 1 has none.
#include "arena_stand_in.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <vector>

namespace {

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kInvalidDevice = 101, kInvalidContext = 201;
constexpr std::size_t kGranularity = std::size_t{64} << 10;

struct Work {
  unsigned char* address;
  std::size_t bytes;
  unsigned char value;
  bool writes;
};

struct Memory {
  int file = -1;
  std::size_t bytes = 0;
  int users = 0;  // its handle, and where it is mapped
};

struct Machine {
  std::mutex lock;
  std::size_t total = std::size_t{256} << 20, used = 0, most = 0;
  unsigned long long faults = 0, next_handle = 1;
  std::map<unsigned long long, Memory> memories;
  std::map<std::uintptr_t, std::size_t> reserved, blocks;
  std::map<std::uintptr_t, std::pair<std::size_t, unsigned long long>> mapped;
  std::map<int, std::deque<Work>> streams;
  std::mt19937 random{7};

  bool take(std::size_t bytes) {
    if (bytes > total - std::min(total, used)) return false;
    used += bytes;
    most = std::max(most, used);
    return true;
  }

  void let_go(unsigned long long handle) {
    Memory& memory = memories[handle];
    if (--memory.users > 0) return;
    used -= memory.bytes;
    memories.erase(handle);
  }

  // Work on it is still waiting: then it must not go.
  bool awaited(std::uintptr_t start, std::size_t bytes) const {
    for (const auto& [_, queue] : streams)
      for (const Work& each : queue) {
        const auto at = reinterpret_cast<std::uintptr_t>(each.address);
        if (at < start + bytes && start < at + each.bytes) return true;
      }
    return false;
  }

  void do_one(std::deque<Work>& queue) {
    const Work work = queue.front();
    queue.pop_front();
    if (work.writes) {
      std::memset(work.address, work.value, work.bytes);
      return;
    }
    const bool right =
        std::all_of(work.address, work.address + work.bytes, [&](unsigned char each) { return each == work.value; });
    if (!right) ++faults;
  }

  // All streams go on, in a random order, until this one is done; -1: until all are.
  void wait_for(int stream) {
    for (;;) {
      std::vector<std::deque<Work>*> busy;
      for (auto& [_, queue] : streams)
        if (!queue.empty()) busy.push_back(&queue);
      if (busy.empty() || (stream >= 0 && streams[stream].empty())) return;
      do_one(*busy[random() % busy.size()]);
    }
  }
};

Machine& machine() {
  static auto& only = *new Machine;
  return only;
}

thread_local std::vector<void*> contexts;

template <typename Body>
int inside(Body body) {
  if (contexts.empty()) return kInvalidContext;
  const std::scoped_lock guard(machine().lock);
  return body(machine());
}

void* pointer(unsigned long long address) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }

int cuGetErrorName(int error, const char** name) {
  *name = error == kOutOfMemory     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == kInvalidDevice ? "CUDA_ERROR_INVALID_DEVICE"
                                    : "CUDA_ERROR_INVALID_VALUE";
  return 0;
}

int cuDeviceGet(int* device, int number) {
  *device = number;
  return 0 <= number && number < 2 ? 0 : kInvalidDevice;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 102 && device == 0;
  return 0;
}

int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = machine().total;
  return 0;
}

int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &machine();
  return 0;
}

int cuCtxPushCurrent_v2(void* context) {
  contexts.push_back(context);
  return 0;
}

int cuCtxPopCurrent_v2(void** context) {
  if (contexts.empty()) return kInvalidContext;
  *context = contexts.back();
  contexts.pop_back();
  return 0;
}

int cuCtxSynchronize() {
  return inside([](Machine& machine) {
    machine.wait_for(-1);
    return 0;
  });
}

int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return inside([&](Machine& machine) {
    *total = machine.total;
    *free = machine.total - std::min(machine.total, machine.used);
    return 0;
  });
}

int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  return inside([&](Machine& machine) {
    if (bytes == 0) return kInvalidValue;
    if (!machine.take(bytes)) return kOutOfMemory;
    void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return kOutOfMemory;
    *address = reinterpret_cast<std::uintptr_t>(block);
    machine.blocks[*address] = bytes;
    return 0;
  });
}

int cuMemFree_v2(unsigned long long address) {
  return inside([&](Machine& machine) {
    const auto found = machine.blocks.find(address);
    if (found == machine.blocks.end()) return kInvalidValue;
    machine.wait_for(-1);
    munmap(pointer(address), found->second);
    machine.used -= found->second;
    machine.blocks.erase(found);
    return 0;
  });
}

int cuMemGetAllocationGranularity(std::size_t* bytes, const void*, int) {
  *bytes = kGranularity;
  return 0;
}

int cuMemAddressReserve(unsigned long long* address, std::size_t bytes, std::size_t, unsigned long long,
                        unsigned long long) {
  return inside([&](Machine& machine) {
    if (bytes == 0 || bytes % kGranularity != 0) return kInvalidValue;
    void* space = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) return kOutOfMemory;
    *address = reinterpret_cast<std::uintptr_t>(space);
    machine.reserved[*address] = bytes;
    return 0;
  });
}

int cuMemAddressFree(unsigned long long address, std::size_t bytes) {
  return inside([&](Machine& machine) {
    const auto found = machine.reserved.find(address);
    const auto inside = machine.mapped.lower_bound(address);
    const bool empty = inside == machine.mapped.end() || inside->first >= address + bytes;
    if (found == machine.reserved.end() || found->second != bytes || !empty) {
      ++machine.faults;
      return kInvalidValue;
    }
    munmap(pointer(address), bytes);
    machine.reserved.erase(found);
    return 0;
  });
}

int cuMemCreate(unsigned long long* handle, std::size_t bytes, const void*, unsigned long long) {
  return inside([&](Machine& machine) {
    if (bytes == 0 || bytes % kGranularity != 0) return kInvalidValue;
    if (!machine.take(bytes)) return kOutOfMemory;
    const int file = memfd_create("device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return kOutOfMemory;
    *handle = machine.next_handle++;
    machine.memories[*handle] = {file, bytes, 1};
    return 0;
  });
}

int cuMemRelease(unsigned long long handle) {
  return inside([&](Machine& machine) {
    close(machine.memories[handle].file);  // it cannot be mapped again, and there are not so many descriptors
    machine.let_go(handle);
    return 0;
  });
}

int cuMemMap(unsigned long long address, std::size_t bytes, std::size_t, unsigned long long handle,
             unsigned long long) {
  return inside([&](Machine& machine) {
    const auto next = machine.mapped.lower_bound(address);
    const bool taken =
        (next != machine.mapped.end() && next->first < address + bytes) ||
        (next != machine.mapped.begin() && std::prev(next)->first + std::prev(next)->second.first > address);
    if (taken || machine.memories[handle].bytes != bytes) {
      ++machine.faults;
      return kInvalidValue;
    }
    if (mmap(pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, machine.memories[handle].file, 0) ==
        MAP_FAILED)
      return kOutOfMemory;
    ++machine.memories[handle].users;
    machine.mapped[address] = {bytes, handle};
    return 0;
  });
}

int cuMemSetAccess(unsigned long long address, std::size_t bytes, const void*, std::size_t) {
  return mprotect(pointer(address), bytes, PROT_READ | PROT_WRITE) == 0 ? 0 : kInvalidValue;
}

int cuMemUnmap(unsigned long long address, std::size_t bytes) {
  return inside([&](Machine& machine) {
    const auto found = machine.mapped.find(address);
    if (found == machine.mapped.end() || found->second.first != bytes || machine.awaited(address, bytes)) {
      ++machine.faults;
      return kInvalidValue;
    }
    mmap(pointer(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    machine.let_go(found->second.second);
    machine.mapped.erase(found);
    return 0;
  });
}

void stand_in_queue(int stream, std::uintptr_t address, std::size_t bytes, int value, int writes) {
  const std::scoped_lock guard(machine().lock);
  machine().streams[stream].push_back(
      {reinterpret_cast<unsigned char*>(address), bytes, static_cast<unsigned char>(value), writes != 0});
}

void stand_in_wait(int stream) {
  const std::scoped_lock guard(machine().lock);
  machine().wait_for(stream);
}

unsigned long long stand_in_faults() {
  const std::scoped_lock guard(machine().lock);
  return std::exchange(machine().faults, 0);
}

std::size_t stand_in_used() {
  const std::scoped_lock guard(machine().lock);
  return machine().used;
}

void stand_in_total(std::size_t bytes) {
  const std::scoped_lock guard(machine().lock);
  machine().total = bytes;
}

}  // extern "C"
