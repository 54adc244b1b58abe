#include "arena_device.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "arena_heap.hpp"
#include "arena_region.hpp"

namespace onnxmem::arena {

namespace {

constexpr int kMinimum = 0, kHasVirtualMemory = 102;

}  // namespace

std::string Device::open() {
  int device = 0, maps = 0;
  const auto failed = [&](int error) {
    return "CUDA device " + std::to_string(number_) + ": " + driver_.name_of(error);
  };
  if (const int error = driver_.device(&device, number_)) return failed(error);
  if (const int error = driver_.total(&total_, device)) return failed(error);
  if (const int error = driver_.retain_context(&context_, device)) return failed(error);
  if (driver_.maps() && driver_.attribute(&maps, kHasVirtualMemory, device) == 0 && maps != 0) {
    const MemoryKind kind = kind_on(number_);
    if (driver_.granularity(&granularity_, &kind, kMinimum) != 0) granularity_ = 0;
  }
  return {};
}

void Device::synchronize() noexcept {
  const Current current(*this);
  driver_.synchronize();
}

Device::Memory Device::memory() noexcept {
  const Current current(*this);
  Memory answer;
  driver_.memory(&answer.free, &answer.total);
  return answer;
}

// What is alive or may still be read by others than this run.
std::vector<Interval> Device::used(std::uint64_t by_others_than) const {
  std::vector<Interval> all = live_.intervals();
  for (const Unsettled& each : unsettled_)
    if (each.run == 0 || each.run != by_others_than) all.push_back({each.start, each.end, each.end - each.start});
  std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.start < b.start; });
  // A run may have used a place twice: those who look through them expect ranges that do not overlap.
  std::vector<Interval> apart;
  for (const Interval& each : all) {
    if (apart.empty() || each.start > apart.back().end)
      apart.push_back(each);
    else
      apart.back().end = std::max(apart.back().end, each.end);
  }
  return apart;
}

// Where a block would lie.
std::size_t Device::gap(std::size_t bytes, std::uint64_t run) const {
  const bool all_mine = std::all_of(unsettled_.begin(), unsettled_.end(),
                                    [run](const Unsettled& each) { return run != 0 && each.run == run; });
  return all_mine ? live_.lowest_gap(bytes) : lowest_gap(used(run), bytes);
}

// Whether a block needs memory that is not there, while there is some that nothing lies in.
bool Device::could_spare(std::size_t bytes, std::uint64_t run) {
  const std::scoped_lock guard(lock_);
  if (!maps() || span_.bytes() < live_bytes_ + kPiece) return false;
  const std::size_t start = gap(bytes, run);
  return bytes <= SIZE_MAX - start && !span_.covers(start, start + bytes);
}

void* Device::place(std::size_t bytes, std::uint64_t run) {
  const std::size_t start = gap(bytes, run);
  if (bytes > SIZE_MAX - start || !span_.cover(start, start + bytes)) return nullptr;
  open_run(run);
  return live_.add({.start = start, .end = start + bytes, .size = bytes, .run = run}) ? span_.base() + start : nullptr;
}

void Device::open_run(std::uint64_t run) {
  if (run != 0 && !is_open(run)) open_.push_back({run, false, false});
}

bool Device::is_open(std::uint64_t run) const {
  return std::any_of(open_.begin(), open_.end(), [run](const Open& each) { return each.run == run; });
}

void* Device::single(std::size_t bytes) {
  const Current current(*this);
  Driver::Address block = 0;
  if (driver_.allocate(&block, bytes) != 0) return nullptr;
  void* address = reinterpret_cast<void*>(block);
  try {
    singles_.emplace(address, bytes);
  } catch (...) {
    driver_.free(block);
    return nullptr;
  }
  return address;
}

void* Device::allocate(std::size_t size, std::uint64_t run, bool sparing) noexcept {
  const std::size_t bytes = footprint(size, kDeviceAlignment);
  if (bytes == 0) return nullptr;
  try {
    if (sparing && could_spare(bytes, run)) {
      settle();
      trim();
    }
  } catch (...) {}
  for (const bool last : {false, true}) {
    try {
      const std::scoped_lock guard(lock_);
      if (void* block = maps() ? place(bytes, run) : single(bytes)) {
        live_bytes_ += bytes;
        return block;
      }
    } catch (...) {}
    if (!last) {
      settle();
      trim_all(this);
      trim();
    }
  }
  return nullptr;
}

bool Device::release(void* block, std::uint64_t run) noexcept {
  const std::scoped_lock guard(lock_);
  if (!maps()) {
    const auto found = singles_.find(block);
    if (found == singles_.end()) return false;
    live_bytes_ -= found->second;
    singles_.erase(found);
    const Current current(*this);
    driver_.free(reinterpret_cast<Driver::Address>(block));  // which waits for what the device still does
    return true;
  }
  if (!span_.holds(block)) return false;
  const std::size_t start = static_cast<std::size_t>(static_cast<std::byte*>(block) - span_.base());
  const std::optional<Interval> freed = live_.remove(start);
  if (!freed) return false;
  live_bytes_ -= freed->size;
  const std::uint64_t reader = run != 0 ? run : freed->run;
  // An output of a run that is over is its owner's to wait for, and so it is his to free. Of what was made outside of
  // runs nobody knows who reads it.
  if (run == 0 && reader != 0 && !is_open(reader)) return true;
  try {
    open_run(reader);
    unsettled_.push_back({freed->start, freed->end, reader, ++frees_});
  } catch (...) {
    live_.add(*freed);  // never used again; there was room for it
  }
  return true;
}

void Device::ended(std::uint64_t run, bool settled) noexcept {
  const std::scoped_lock guard(lock_);
  if (settled) {
    std::erase_if(unsettled_, [run](const Unsettled& each) { return each.run == run; });
    std::erase_if(open_, [run](const Open& each) { return each.run == run; });
  } else {
    for (Open& each : open_)
      if (each.run == run) each.ended = true;
  }
}

void Device::settle() noexcept {
  std::uint64_t until = 0;
  {
    const std::scoped_lock guard(lock_);
    for (Open& each : open_) each.over = each.ended;
    if (unsettled_.empty() && open_.empty()) return;
    until = frees_;
    ++synchronizations_;
  }
  synchronize();
  const std::scoped_lock guard(lock_);
  std::erase_if(unsettled_, [&](const Unsettled& each) { return each.when <= until; });
  std::erase_if(open_, [](const Open& each) { return each.over; });
}

void Device::trim() noexcept {
  try {
    const std::scoped_lock guard(lock_);
    span_.uncover(used(0));
  } catch (...) {}
}

DeviceStats Device::stats() {
  const std::scoped_lock guard(lock_);
  const std::size_t blocks = maps() ? live_.intervals().size() : singles_.size();
  return {maps() ? span_.bytes() : live_bytes_, live_bytes_, blocks, synchronizations_};
}

namespace {

struct Devices {
  std::mutex lock;
  std::map<std::pair<std::string, int>, Device*> known;
};

Devices& devices() {
  static auto& process_wide = *new Devices;
  return process_wide;
}

}  // namespace

void lock_devices() {
  devices().lock.lock();
  for (const auto& [_, device] : devices().known)
    if (device != nullptr) device->lock_.lock();
}

void unlock_devices() {
  for (const auto& [_, device] : devices().known)
    if (device != nullptr) device->lock_.unlock();
  devices().lock.unlock();
}

Device* open_device(int number, const std::string& library, std::string& problem) {
  const std::scoped_lock guard(devices().lock);
  Device*& found = devices().known[{library, number}];
  if (found != nullptr) return found;
  const Driver* driver = load_driver(library, problem);
  if (driver == nullptr) return nullptr;
  auto device = std::unique_ptr<Device>(new Device(*driver, number));
  problem = device->open();
  if (problem.empty()) found = device.release();
  return found;
}

NoDeviceMemory::NoDeviceMemory(std::size_t size, int device) {
  std::snprintf(text_, sizeof text_, "Failed to allocate memory for requested buffer of size %zu on CUDA device %d",
                size, device);
}

}  // namespace onnxmem::arena
