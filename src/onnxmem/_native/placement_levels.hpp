// Sets of decisions, to explain a failure: only a decision that had a part in it is worth another try.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace onnxmem::placement {

// Decisions by their depth in the search. Those too deep for the set share its last bit, which is never removed:
// an explanation may name too many decisions, never too few.
class Levels {
 public:
  void add(std::size_t depth) { words_[index(depth) / 64] |= bit(depth); }
  void remove(std::size_t depth) {
    if (depth < kBits - 1) words_[depth / 64] &= ~bit(depth);
  }
  bool has(std::size_t depth) const { return (words_[index(depth) / 64] & bit(depth)) != 0; }
  Levels& operator|=(const Levels& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
  }

 private:
  static constexpr std::size_t kBits = 512;
  static std::size_t index(std::size_t depth) { return depth < kBits ? depth : kBits - 1; }
  static std::uint64_t bit(std::size_t depth) { return std::uint64_t{1} << (index(depth) % 64); }
  std::array<std::uint64_t, kBits / 64> words_{};
};

}  // namespace onnxmem::placement
