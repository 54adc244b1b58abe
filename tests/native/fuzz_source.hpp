// The bytes of an input as decisions. When they are used up all decisions are the first of their kind, so that a short
// input is a small instance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

class Source {
 public:
  Source(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  bool empty() const { return at_ == size_; }
  std::uint64_t bytes(int count) {
    std::uint64_t value = 0;
    for (; count > 0; --count) value = value << 8 | (empty() ? 0 : data_[at_++]);
    return value;
  }
  std::uint64_t next() { return bytes(3); }  // a seed: others than these few are no better
  std::size_t below(std::size_t count) {
    return static_cast<std::size_t>(bytes(count <= 1 << 8 ? 1 : count <= 1 << 16 ? 2 : 4)) % count;
  }
  int pick(int low, int high) { return low + static_cast<int>(below(static_cast<std::size_t>(high - low + 1))); }

 private:
  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
};

// Is an answer to be made wrong on purpose, to see that the checks notice?
inline bool planted() {
  static const bool answer = std::getenv("ONNXMEM_PLANTED") != nullptr;
  return answer;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
int run_inputs(const char* path, long inputs, unsigned long seed);  // fuzz_driver.cpp
