// How long a search may go on.
#pragma once

#include <chrono>
#include <functional>

namespace onnxmem::ordering {

// Ends a search at a time, or when asked to; cheap enough to be asked at every state.
class Budget {
 public:
  using Clock = std::chrono::steady_clock;
  Budget(double seconds, std::function<bool()> interrupted);
  bool over();

 private:
  Clock::time_point deadline_, next_question_;
  std::function<bool()> interrupted_;
  int countdown_ = 0;
  bool over_ = false;
};

}  // namespace onnxmem::ordering
