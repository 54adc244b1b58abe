// Runs on a device: the same made-up runs, on streams that lag.
#include <algorithm>
#include <memory>
#include <thread>

#include "arena_play_device.hpp"

namespace onnxmem::arena {

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Some threads, each with a stream of its own, in two regions; now and then a run asks for something else.
void test_threads(int number) {
  Device& on = device(number);
  const std::size_t before = stand_in_used();
  {
    Pool pool(2, true, false, &on);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; ++thread)
      threads.emplace_back([&, thread] {
        std::mt19937 random(static_cast<unsigned>(thread));
        for (int shape = 0; shape < 4; ++shape) {
          const std::vector<Call> calls = random_calls(random, 40);
          const Tape tape = device_tape(record_on(on, thread, calls));
          for (int turn = 0; turn < 12; ++turn) {
            std::vector<Call> now = calls;
            if (turn % 4 == 3) now = random_calls(random, 30);
            const Replayed result = replay_on(tape, pool, thread, now, turn, turn % 3 != 1, turn % 3 != 1);
            CHECK(turn % 4 == 3 || !result.deviation);
            if (turn % 5 == 4) pool.trim();
            if (turn % 6 == 5) pool.shrink(tape.peak() / 2);
            if (turn % 7 == 6) on.trim();
            if (turn % 7 == 5) on.settle();
          }
        }
      });
    for (std::thread& each : threads) each.join();
    CHECK(pool.stats().escaped == 0);
  }
  stand_in_wait(-1);
  on.settle();
  on.trim();
  CHECK(stand_in_faults() == 0);
  CHECK(on.stats().live_blocks == 0 && stand_in_used() == before);
}

// That the stand-in notices what must not be: a region lent again before the stream of its last run is done.
void test_that_early_reuse_is_noticed() {
  Device& on = device(0);
  std::vector<Call> calls;
  for (int buffer = 0; buffer < 8; ++buffer) calls.insert(calls.end(), {{buffer, 70'000}, {buffer, 0}});
  const Tape tape = device_tape(record_on(on, 0, calls));
  Pool pool(1, true, false, &on);
  replay_on(tape, pool, 1, calls, 10, false, true);  // not true
  replay_on(tape, pool, 2, calls, 60, true, true);
  stand_in_wait(-1);
  CHECK(stand_in_faults() > 0);
  replay_on(tape, pool, 1, calls, 10, false, false);
  replay_on(tape, pool, 2, calls, 60, true, true);
  stand_in_wait(-1);
  CHECK(stand_in_faults() == 0);
}

// A block of the heap that one run has freed is its own to use again, and not another's before that run is over.
void test_heap_between_runs() {
  Device& on = device(0);
  HeapRun first(&on), second(&on);
  const auto use = [&](int stream, void* block, int value) {
    queue(stream, block, 1000, value, true);
    queue(stream, block, 1000, value, false);
    release_on(on, block);
  };
  begin(first);
  void* block = allocate_on(on, 1000);
  use(1, block, 1);
  CHECK(allocate_on(on, 1000) == block);  // the same stream
  use(1, block, 2);
  end(first);
  begin(second);
  void* other = allocate_on(on, 1000);
  CHECK(other != block);
  use(2, other, 3);
  void* across = allocate_on(on, 300'000);  // over several pieces, and then in a part of them again
  queue(2, across, 300'000, 6, true);
  queue(2, across, 300'000, 6, false);
  release_on(on, across);
  use(2, allocate_on(on, 1000), 7);
  on.trim();  // what may still be read stays
  stand_in_wait(1);
  on.ended(first.number, true);
  CHECK(allocate_on(on, 1000) == block);
  void* output = allocate_on(on, 1000);  // outlives the second run, which is not waited for
  use(2, block, 4);
  queue(2, output, 1000, 5, true);
  end(second);
  on.ended(second.number, false);
  release_on(on, output);
  void* unknown_reader = allocate_on(on, 1000);
  CHECK(unknown_reader != block && unknown_reader != other && unknown_reader != output);
  release_on(on, unknown_reader);  // it was made outside of runs
  const auto waits = on.stats().synchronizations;
  void* one_more = allocate_on(on, 1000);
  CHECK(one_more != unknown_reader && on.stats().synchronizations == waits);
  release_on(on, one_more);
  on.settle();
  CHECK(on.stats().synchronizations == waits + 1);
  CHECK(allocate_on(on, 1000) == block);
  release_on(on, block);
  on.settle();
  on.trim();
  CHECK(stand_in_faults() == 0);
}

// A run that is recorded takes what is alive at once, not what it has freed before; one from the heap keeps that.
void test_recording_is_sparing() {
  Device& on = device(0);
  stand_in_total(512 * kMiB);
  const auto most_of = [&](Run& run) {
    const std::size_t before = stand_in_used();
    begin(run);
    void* large = allocate_on(on, 64 * kMiB);
    void* small = allocate_on(on, kMiB);
    queue(1, large, 64 * kMiB, 1, true);
    queue(1, large, 64 * kMiB, 1, false);
    release_on(on, large);
    void* larger = allocate_on(on, 128 * kMiB);  // does not fit where the first one lay
    CHECK(larger != nullptr);
    queue(1, larger, 128 * kMiB, 2, true);
    queue(1, larger, 128 * kMiB, 2, false);
    const std::size_t most = stand_in_used() - before;
    release_on(on, larger);
    release_on(on, small);
    stand_in_wait(1);
    end(run);
    on.ended(run.number, true);
    on.trim();
    CHECK(stand_in_used() == before);
    return most;
  };
  HeapRun kept(&on);
  RecordingRun spared(false, nullptr, {}, &on);
  CHECK(most_of(kept) >= 193 * kMiB);
  CHECK(most_of(spared) <= (129 + 33) * kMiB);
  CHECK(stand_in_faults() == 0);
  stand_in_total(256 * kMiB);
}

// Memory comes and goes in pieces: what is covered can be written, keeps what was written, and nothing else is taken.
void test_span(int number) {
  Device& on = device(number);
  std::mt19937 random(5);
  const std::size_t before = stand_in_used();
  {
    Span span(on);
    std::vector<Interval> kept;
    const auto stamp = [](const Interval& each) { return static_cast<int>(each.start % 250); };
    const auto check = [&] {
      for (const Interval& each : kept)
        for (const std::size_t at : {each.start, each.end - 1}) CHECK(static_cast<int>(span.base()[at]) == stamp(each));
      CHECK(stand_in_used() - before == span.bytes());
    };
    for (int turn = 0; turn < 300; ++turn) {
      const std::size_t start = random() % (40 * kMiB), end = start + 1 + random() % (3 * kMiB);
      if (!on.maps()) {
        kept.clear();
        CHECK(span.cover(0, end) && span.end() >= end);
        if (turn % 3 == 0) span.cut(start);
      } else if (turn % 10 == 9) {
        span.uncover(kept);
        check();
        if (turn % 30 == 29) {
          span.cut(start);
          kept.clear();  // a piece that is cut is another one afterwards
        }
      } else {
        CHECK(span.cover(start, end));
        const Interval fresh{start, end, end - start};
        const bool free = std::none_of(kept.begin(), kept.end(),
                                       [&](const Interval& each) { return each.start < end && start < each.end; });
        if (!free) continue;
        std::memset(span.base() + start, stamp(fresh), end - start);
        kept.insert(std::upper_bound(kept.begin(), kept.end(), fresh,
                                     [](const Interval& a, const Interval& b) { return a.start < b.start; }),
                    fresh);
        if (kept.size() > 8) kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(random() % kept.size()));
      }
      check();
    }
    span.cut(0);
    CHECK(span.bytes() == 0 && !span.cover(0, SIZE_MAX / 2));
  }
  CHECK(stand_in_used() == before && stand_in_faults() == 0);
}

// Weights lie one behind the other: what they take is what they are, up to one piece of the driver's.
void test_weights_are_packed() {
  Device& on = device(0);
  std::mt19937 random(3);
  const std::size_t before = stand_in_used();
  std::vector<void*> weights;
  std::size_t bytes = 0;
  for (int k = 0; k < 200; ++k) {
    const std::size_t size = 1 + random() % 200'000;
    weights.push_back(on.allocate(size, 0));
    CHECK(weights.back() != nullptr);
    bytes += footprint(size, kDeviceAlignment);
  }
  CHECK(on.stats().live_bytes == bytes);
  CHECK(stand_in_used() - before < bytes + kMiB / 8);
  for (void* each : weights) CHECK(on.release(each, 0));
  CHECK(!on.release(weights.front(), 0));
  on.settle();
  on.trim();
  CHECK(stand_in_used() == before);
}

// No memory is null, and everything works again when there is some. What is kept for later goes first.
void test_no_memory(int number) {
  Device& on = device(number);
  CHECK(allocate_on(on, 0) == nullptr && allocate_on(on, SIZE_MAX) == nullptr &&
        allocate_on(on, SIZE_MAX / 2) == nullptr);
  Pool pool(2, true, false, &on);
  pool.release(borrow_on(pool, 20 * kMiB));
  stand_in_total(32 * kMiB);
  void* large = allocate_on(on, 30 * kMiB);  // there was not so much until the region went
  CHECK(large != nullptr && pool.stats().bytes == 0);
  CHECK(allocate_on(on, 10 * kMiB) == nullptr);
  CHECK(pool.acquire(10 * kMiB, 0.0).answer == Pool::Answer::refused);
  release_on(on, large);
  Region& region = borrow_on(pool, 31 * kMiB);  // what the heap keeps goes, too
  CHECK(region.capacity() >= 31 * kMiB);
  pool.release(region);
  stand_in_total(256 * kMiB);
}

void test_what_cannot_be() {
  std::string problem;
  CHECK(open_device(9, "", problem) == nullptr && problem.find("CUDA_ERROR_INVALID_DEVICE") != std::string::npos);
  CHECK(open_device(-1, "", problem) == nullptr && open_device(1000, "", problem) == nullptr);
  Device& on = device(0);
  Pool pool(1, true, false, &on);
  Region& region = borrow_on(pool, 4096);
  const Trace trace{{100, 100}, {0, 1}, {2, 3}};
  for (const std::size_t guard : {std::size_t{0}, std::size_t{64}}) {
    const std::size_t alignment = guard == 0 ? kAlignment : kDeviceAlignment;
    const Tape tape(trace, place_in_sequence(trace, 512), guard, false, {}, alignment);
    bool refused = false;
    try {
      const ReplayingRun run(tape, region);
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    CHECK(refused);
  }
  pool.release(region);
  CHECK(std::string(NoDeviceMemory(5, 0).what()).find("size 5 on CUDA device 0") != std::string::npos);
}

}  // namespace

void test_devices() {
  test_what_cannot_be();
  test_weights_are_packed();
  test_heap_between_runs();
  test_recording_is_sparing();
  for (const int number : {0, 1}) {
    test_span(number);
    test_threads(number);
    test_no_memory(number);
  }
  test_that_early_reuse_is_noticed();
}

}  // namespace onnxmem::arena
