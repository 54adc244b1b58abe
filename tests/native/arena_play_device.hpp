// Runs on a device that is stood in for, on streams that lag: what its tests share.
#pragma once

#include <string>

#include "arena_device.hpp"
#include "arena_play.hpp"
#include "arena_stand_in.hpp"

namespace onnxmem::arena {

inline Device& device(int number) {
  std::string problem;
  Device* found = open_device(number, "", problem);  // the stand-in is part of this program
  CHECK(found != nullptr && problem.empty());
  return *found;
}

inline void queue(int stream, void* block, std::size_t bytes, int value, bool writes) {
  stand_in_queue(stream, reinterpret_cast<std::uintptr_t>(block), bytes, value, writes);
}

struct Left {
  void* block;
  std::size_t size;
  int value;
};

// Plays a run on a stream: each buffer is written when it is made and read before it is freed. Returns what outlived
// it.
inline std::vector<Left> play_on(Device& on, int stream, const std::vector<Call>& calls, int mark) {
  std::vector<Left> all(calls.size(), Left{});
  for (const Call& call : calls) {
    Left& one = all[static_cast<std::size_t>(call.buffer)];
    if (call.size != 0) {
      one = {allocate_on(on, call.size), call.size, (mark + call.buffer) % 251};
      CHECK(one.block != nullptr &&
            reinterpret_cast<std::uintptr_t>(one.block) % (on.maps() ? kDeviceAlignment : 1) == 0);
      queue(stream, one.block, one.size, one.value, true);
    } else {
      queue(stream, one.block, one.size, one.value, false);
      release_on(on, one.block);
      one.block = nullptr;
    }
  }
  std::erase_if(all, [](const Left& each) { return each.block == nullptr; });
  return all;
}

inline void free_all(Device& on, int stream, const std::vector<Left>& left) {
  for (const Left& each : left) queue(stream, each.block, each.size, each.value, false);
  stand_in_wait(stream);
  for (const Left& each : left) release_on(on, each.block);
}

inline Trace record_on(Device& on, int stream, const std::vector<Call>& calls) {
  RecordingRun run(false, nullptr, {}, &on);
  begin(run);
  const auto left = play_on(on, stream, calls, 1);
  end(run);
  stand_in_wait(stream);
  on.ended(run.number, true);
  free_all(on, stream, left);
  CHECK(run.complete());
  return run.trace();
}

inline Tape device_tape(const Trace& trace) {
  return Tape(trace, place_in_sequence(trace, kDeviceAlignment), 0, false, {}, kDeviceAlignment);
}

inline Region& borrow_on(Pool& pool, std::size_t bytes) {
  Pool::Loan loan{};
  do loan = pool.acquire(bytes, 1.0);
  while (loan.answer == Pool::Answer::busy);
  CHECK(loan.answer == Pool::Answer::lent);
  return *loan.region;
}

// `waits`: the stream is done when the run ends; `settled`: that is what the pool is told.
inline Replayed replay_on(const Tape& tape, Pool& pool, int stream, const std::vector<Call>& calls, int mark,
                          bool waits = true, bool settled = true) {
  Region& region = borrow_on(pool, tape.peak());
  ReplayingRun run(tape, region);
  begin(run);
  const auto left = play_on(*pool.device(), stream, calls, mark);
  end(run);
  if (waits) stand_in_wait(stream);
  pool.device()->ended(run.number, settled);
  const Replayed result = run.finish();
  pool.release(region, settled);
  if (waits) {
    free_all(*pool.device(), stream, left);
  } else {
    for (const Left& each : left) release_on(*pool.device(), each.block);
  }
  return result;
}

}  // namespace onnxmem::arena
