// How long a search may go on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace onnxmem::ordering {

// Ends a search when its work is done, at a time, or when asked to; cheap enough to be asked at every state. Work is
// counted and not timed, so that a search ends in the same place however busy the machine is; the time is for machines
// that are far slower than others.
class Budget {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::uint64_t kEndless = ~std::uint64_t{0};
  Budget(double seconds, std::function<bool()> interrupted, std::uint64_t work = kEndless);
  bool over();
  void spend(std::uint64_t work) { left_ -= work < left_ ? work : left_; }

 private:
  Clock::time_point deadline_, next_question_;
  std::function<bool()> interrupted_;
  std::uint64_t left_;
  int countdown_ = 0;
  bool over_ = false;
};

}  // namespace onnxmem::ordering
