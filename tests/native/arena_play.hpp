// Runs that are made up, recorded and replayed: what the tests of the allocator share.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "arena_heap.hpp"
#include "arena_region.hpp"
#include "arena_run.hpp"
#include "arena_tape.hpp"

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                        \
    }                                                                      \
  } while (false)

namespace onnxmem::arena {

void test_outputs(bool threads_only);  // in a file of its own

struct Call {
  int buffer;
  std::size_t size;  // 0: a free
};

// A random run: buffers of random sizes; some are never freed.
inline std::vector<Call> random_calls(std::mt19937& random, int buffers) {
  std::vector<Call> calls;
  std::vector<int> alive;
  for (int next = 0; next < buffers;) {
    if (alive.empty() || random() % 2) {
      const std::size_t limit = random() % 10 == 0 ? 400'000 : 5'000;
      calls.push_back({next, 1 + random() % limit});
      alive.push_back(next++);
    } else {
      const std::size_t k = random() % alive.size();
      if (random() % 12) calls.push_back({alive[k], 0});
      alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
  return calls;
}

// Plays a run, writes to every byte and sees that nobody else did (to every `stride`th). Returns what outlived it.
inline std::vector<void*> play(const std::vector<Call>& calls, unsigned char mark, std::size_t stride = 1) {
  std::vector<unsigned char*> blocks(calls.size(), nullptr);
  std::vector<std::size_t> sizes(calls.size(), 0);
  for (const Call& call : calls) {
    const unsigned char stamp = static_cast<unsigned char>(mark + call.buffer);
    if (call.size != 0) {
      auto* block = static_cast<unsigned char*>(allocate(call.size));
      CHECK(block != nullptr && reinterpret_cast<std::uintptr_t>(block) % kAlignment == 0);
      std::memset(block, stamp, call.size);
      blocks[call.buffer] = block, sizes[call.buffer] = call.size;
    } else {
      for (std::size_t k = 0; k < sizes[call.buffer]; k += stride) CHECK(blocks[call.buffer][k] == stamp);
      release(blocks[call.buffer]);
      blocks[call.buffer] = nullptr;
    }
  }
  std::vector<void*> left;
  for (auto* block : blocks)
    if (block != nullptr) left.push_back(block);
  return left;
}

inline Trace record(const std::vector<Call>& calls) {
  RecordingRun run(false);
  begin(run);
  const auto left = play(calls, 1);
  end(run);
  for (void* block : left) release(block);
  CHECK(run.complete());
  return run.trace();
}

inline Replayed replay(const Tape& tape, Pool& pool, const std::vector<Call>& calls, unsigned char mark) {
  Pool::Loan loan{};
  do loan = pool.acquire(tape.peak(), 1.0);
  while (loan.answer == Pool::Answer::busy);
  CHECK(loan.answer == Pool::Answer::lent);
  ReplayingRun run(tape, *loan.region);
  begin(run);
  const auto left = play(calls, mark);
  end(run);
  const Replayed result = run.finish();
  // As far as it follows the tape, it counts calls as the recording did.
  if (!result.deviation) CHECK(run.calls() == static_cast<std::int64_t>(tape.events().size()));
  pool.release(*loan.region);
  for (void* block : left) release(block);
  return result;
}

void test_shared_places();  // arena_shared.cpp
void test_devices();        // arena_device_test.cpp

}  // namespace onnxmem::arena
