// Memory of a device: address space in which memory appears where it is needed, and a heap for whatever no plan has a
// place for. What a place held may still be read by work that waits on a stream when the host has freed it; so a place
// is used again at once only by the run that freed it. Others get another one until that run is over on the device,
// too. Nothing waits for the device while it holds a lock: what the device does may need one of ours to go on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "arena_driver.hpp"
#include "arena_live.hpp"

namespace onnxmem::arena {

class Device;

// Pieces of address space that memory comes and goes in. Larger ones are fewer calls, smaller ones let more of it go.
constexpr std::size_t kPiece = std::size_t{32} << 20;

// Memory of a device, pinned there.
inline MemoryKind kind_on(int device) { return {1, 0, {1, device}, nullptr, {}}; }

// What ONNX Runtime's own allocators promise on a device; its kernels rely on it.
constexpr std::size_t kDeviceAlignment = 256;

// Addresses that stay the same for as long as it lives, with memory behind some of them. Where the driver has no
// virtual memory it is one block, which has to be given up to have another of another size. Users see to it that no two
// threads change it at once.
class Span {
 public:
  explicit Span(Device& device) : device_(device) {}
  ~Span();
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  // There is memory from `start` to `end` from now on, and it stays where it was. False: as it was before.
  bool cover(std::size_t start, std::size_t end) noexcept;
  // Gives back pieces that none of these touches; the device must be done with them.
  void uncover(const std::vector<Interval>& used) noexcept;
  // Gives back what lies above; nothing in it is needed any more, by the device neither.
  void cut(std::size_t end) noexcept;

  std::byte* base() const { return reinterpret_cast<std::byte*>(base_); }
  std::size_t space() const { return space_; }
  std::size_t bytes() const { return bytes_; }
  std::size_t end() const { return pieces_.empty() ? 0 : pieces_.rbegin()->first + pieces_.rbegin()->second; }
  bool covers(std::size_t start, std::size_t end) const;
  bool holds(const void* p) const {
    return reinterpret_cast<std::uintptr_t>(p) - static_cast<std::uintptr_t>(base_) < space_;
  }

 private:
  bool open() noexcept;
  bool one_block(std::size_t end) noexcept;
  bool add(std::size_t start, std::size_t bytes) noexcept;
  void drop(std::map<std::size_t, std::size_t>::iterator piece) noexcept;

  Device& device_;
  Driver::Address base_ = 0;
  std::size_t space_ = 0, bytes_ = 0;
  std::map<std::size_t, std::size_t> pieces_;  // where each begins, and its size
};

struct DeviceStats {
  std::size_t heap_bytes = 0, live_bytes = 0, live_blocks = 0;  // heap: with what is kept of it
  std::uint64_t synchronizations = 0;
};

class Device {
 public:
  // Blocks of the heap, packed. `run` is the number of the run that asks or frees, 0 outside of any. Null where there
  // is no memory, after everything that is kept was given back. Whoever is `sparing` rather waits for the device, and
  // gives back what is kept, than takes more from it: for runs that come once.
  void* allocate(std::size_t size, std::uint64_t run, bool sparing = false) noexcept;
  bool release(void* block, std::uint64_t run) noexcept;  // false: not one of these, and nothing was done
  // The run has ended; `settled`: on the device, too.
  void ended(std::uint64_t run, bool settled) noexcept;
  void trim() noexcept;    // give back what is kept and the device is certainly done with
  void settle() noexcept;  // wait for the device: then it is done with all that has been freed
  void synchronize() noexcept;
  DeviceStats stats();

  struct Memory {
    std::size_t free = 0, total = 0;
  };
  Memory memory() noexcept;  // of the whole device, as the driver says

  bool maps() const { return granularity_ != 0; }
  int number() const { return number_; }

 private:
  friend Device* open_device(int, const std::string&, std::string&);
  friend void lock_devices();
  friend void unlock_devices();
  friend class Span;
  friend class Current;
  Device(const Driver& driver, int number) : driver_(driver), number_(number), span_(*this) {}
  std::string open();

  // Freed, but work that waits on some stream may still read it.
  struct Unsettled {
    std::size_t start, end;
    std::uint64_t run, when;
  };
  // A run that may not be over on the device.
  struct Open {
    std::uint64_t run;
    bool ended, over;  // over: it had ended before the device was waited for
  };
  std::size_t gap(std::size_t bytes, std::uint64_t run) const;
  bool could_spare(std::size_t bytes, std::uint64_t run);
  void* place(std::size_t bytes, std::uint64_t run);
  void* single(std::size_t bytes);
  void open_run(std::uint64_t run);
  bool is_open(std::uint64_t run) const;
  std::vector<Interval> used(std::uint64_t by_others_than) const;

  const Driver& driver_;
  const int number_;
  void* context_ = nullptr;
  std::size_t granularity_ = 0, total_ = 0;

  std::mutex lock_;
  Span span_;
  LiveSet live_;
  std::vector<Unsettled> unsettled_;  // by a run that is not over, or by nobody knows whom (0)
  std::uint64_t frees_ = 0;
  std::vector<Open> open_;
  std::unordered_map<void*, std::size_t> singles_;  // where there is no virtual memory
  std::size_t live_bytes_ = 0;
  std::uint64_t synchronizations_ = 0;  // in `settle`
};

// The driver works in the context that is the calling thread's at that moment: ours, while one of these lives.
class Current {
 public:
  explicit Current(const Device& device)
      : driver_(device.driver_), pushed_(driver_.push_context(device.context_) == 0) {}
  ~Current() {
    void* ours = nullptr;
    if (pushed_) driver_.pop_context(&ours);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Driver& driver_;
  const bool pushed_;
};

// A device by its number, opened once per process and never closed; null and why, if it cannot be used.
Device* open_device(int number, const std::string& library, std::string& problem);

// Around fork(): a child cannot use CUDA, but it may well free what it has of it.
void lock_devices();
void unlock_devices();

// No memory on a device. ONNX Runtime passes on what it says.
class NoDeviceMemory : public std::bad_alloc {
 public:
  NoDeviceMemory(std::size_t size, int device);
  const char* what() const noexcept override { return text_; }

 private:
  char text_[128];
};

}  // namespace onnxmem::arena
