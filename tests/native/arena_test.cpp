// The allocator without Python and without ONNX Runtime, to be built with sanitizers. Exits 0 if all is well.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "arena_heap.hpp"
#include "arena_play.hpp"
#include "arena_region.hpp"
#include "arena_run.hpp"
#include "arena_tape.hpp"
#include "fuzz_source.hpp"

using namespace onnxmem::arena;

namespace {

void test_heap() {
  CHECK(allocate(0) == nullptr);
  CHECK(allocate(SIZE_MAX) == nullptr && allocate(SIZE_MAX - 70) == nullptr && allocate(SIZE_MAX / 2) == nullptr);
  release(nullptr);
  int foreign = 0;
  const auto before = unknown_frees();
  release(&foreign);
  CHECK(unknown_frees() == before + 1);
  void* block = allocate(100);
  release(block);
  release(block);  // twice: noticed, not done
  CHECK(unknown_frees() == before + 2);
  for (const Large large : {Large::shared, Large::recycled}) {
    void* a = heap().allocate(1'000'000, large);
    std::memset(a, 1, 1'000'000);
    CHECK(heap().release(a));
    void* b = heap().allocate(1'000'000, large);
    if (large == Large::recycled) CHECK(a == b);
    CHECK(heap().release(b));
  }
  heap().trim();
  CHECK(heap().live_blocks() == 0 && heap().live_bytes() == 0);
}

// Blocks of all sizes, taken and given back: nobody gets a page that somebody has, and no more exist than needed.
void test_recycler() {
  constexpr std::size_t page = 4096;
  std::mt19937 random(4);
  Recycler recycler;
  struct Taken {
    unsigned char* block;
    std::size_t bytes;
    unsigned char stamp;
  };
  std::vector<Taken> taken;
  for (int turn = 0; turn < 4000; ++turn) {
    if (taken.empty() || (random() % 2 && taken.size() < 12)) {
      const std::size_t bytes = (1 + random() % 60) * page;
      auto* block = static_cast<unsigned char*>(recycler.take(bytes));
      CHECK(block != nullptr);
      const auto stamp = static_cast<unsigned char>(turn);
      std::memset(block, stamp, bytes);
      taken.push_back({block, bytes, stamp});
    } else {
      const std::size_t k = random() % taken.size();
      const Taken each = taken[k];
      for (std::size_t i = 0; i < each.bytes; i += 97) CHECK(each.block[i] == each.stamp);
      CHECK(each.block[each.bytes - 1] == each.stamp);
      recycler.give(each.block, each.bytes);
      if (turn % 3 == 0) recycler.keep_within(recycler.kept_bytes() / 2);
      taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(k));
    }
    CHECK(recycler.used_bytes() + recycler.kept_bytes() <= recycler.most_bytes());
    if (turn % 500 == 499) recycler.drop();
  }
  for (const Taken& each : taken) recycler.give(each.block, each.bytes);
  recycler.drop();
  CHECK(recycler.used_bytes() == 0 && recycler.kept_bytes() == 0);
}

bool refused(const Trace& trace, std::vector<std::int64_t> offsets) {
  try {
    const Tape tape(trace, std::move(offsets), 0, false);
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

void test_wrong_tapes() {
  const Trace two{{64, 64}, {0, 1}, {2, 3}};
  CHECK(!refused(two, {0, 64}) && !refused(two, {0, -1}));
  CHECK(refused(two, {0, 0}));                          // overlap
  CHECK(refused(two, {0, 8}));                          // not aligned
  CHECK(refused(two, {0}));                             // too few
  CHECK(refused({{64, 64}, {0, 1}, {2, 2}}, {0, 64}));  // two calls at one step
  CHECK(refused({{64, -1}, {0, 1}, {2, 3}}, {0, 64}));  // no size
  CHECK(refused({{64, 64}, {0, 3}, {2, 1}}, {0, 64}));  // freed before it was allocated
  CHECK(refused({{64, 0}, {0, 1}, {2, -1}}, {0, 64}));  // a place for any size
  CHECK(!refused({{64, 0}, {0, 1}, {2, -1}}, {0, -1}));
  CHECK(refused({{64, INT64_MAX}, {0, 1}, {2, 3}}, {0, 64}));
}

void test_replay_and_deviations() {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const auto calls = random_calls(random, 60);
    const Trace trace = record(calls);
    const std::size_t guard = round % 2 ? 64 : 0;
    Trace padded = trace;
    for (auto& size : padded.sizes) size = static_cast<std::int64_t>(footprint(static_cast<std::size_t>(size)) + guard);
    const Tape tape(trace, place_in_sequence(padded), guard, false);
    Pool pool(1, true, false);
    for (int turn = 0; turn < 3; ++turn) {
      const Replayed result = replay(tape, pool, calls, static_cast<unsigned char>(turn));
      CHECK(!result.deviation && result.overruns == 0);
    }
    // Any change at all, and every byte is still where it was written.
    auto other = calls;
    const std::size_t at = random() % other.size();
    if (other[at].size != 0)
      other[at].size += 1 + random() % 300;
    else
      other.erase(other.begin() + static_cast<std::ptrdiff_t>(at));
    CHECK(replay(tape, pool, other, 9).deviation);
    CHECK(pool.stats().escaped == 0);
    CHECK(!replay(tape, pool, calls, 3).deviation);
    CHECK(replay(tape, pool, random_calls(random, 40), 5).deviation);
  }
  CHECK(heap().live_blocks() == 0);
}

// A region without waiting for one.
Region* taken(Pool& pool, std::size_t bytes) { return pool.acquire(bytes, 0.0).region; }

// New shapes, one after the other, in a region that may be too small for them.
void test_recording_in_a_region() {
  std::mt19937 random(3);
  Pool pool(1, true, false);
  for (int round = 0; round < 60; ++round) {
    const auto calls = random_calls(random, 60);
    const Trace alone = record(calls);
    std::vector<std::int64_t> outlasting;
    for (std::size_t k = 0; k < alone.uppers.size(); ++k)
      if (alone.uppers[k] == -1) outlasting.push_back(static_cast<std::int64_t>(k));
    Region* region = taken(pool, random() % 600'000);
    CHECK(region != nullptr && taken(pool, 1) == nullptr);  // one run at a time
    RecordingRun run(true, region, outlasting);
    begin(run);
    const auto left = play(calls, static_cast<unsigned char>(round));
    end(run);
    for (void* block : left) CHECK(!region->holds(block));
    pool.release(*region);
    CHECK(pool.stats().escaped == 0);
    for (void* block : left) release(block);
    const Trace inside = run.trace();
    CHECK(inside.sizes == alone.sizes && inside.lowers == alone.lowers && inside.uppers == alone.uppers);
  }
  // An output that nobody expected keeps its region, and only that, until it is freed.
  Region* region = taken(pool, 4096);
  RecordingRun run(true, region);
  begin(run);
  void* kept = allocate(100);
  end(run);
  pool.release(*region);
  CHECK(region->holds(kept) && taken(pool, 4096) == nullptr);
  release(kept);
  CHECK(taken(pool, 4096) == region);
  pool.release(*region);
  CHECK(heap().live_blocks() == 0);
}

void test_overrun_is_seen() {
  const Trace trace{{100}, {0}, {1}};
  const Tape tape(trace, {0}, 64, false);
  Pool pool(1, true, false);
  const auto loan = pool.acquire(tape.peak(), 0);
  ReplayingRun run(tape, *loan.region);
  begin(run);
  auto* block = static_cast<unsigned char*>(allocate(100));
  block[100] = 1;
  release(block);
  CHECK(block[0] == 0xDB);  // freed memory is overwritten
  end(run);
  CHECK(run.finish().overruns == 1);
  pool.release(*loan.region);
}

void test_escape() {
  const Trace trace{{4096, 4096}, {0, 1}, {2, 3}};
  const Tape tape(trace, {0, 4096}, 0, false);
  auto pool = std::make_unique<Pool>(1, true, false);
  const auto loan = pool->acquire(tape.peak(), 0);
  ReplayingRun run(tape, *loan.region);
  begin(run);
  void* kept = allocate(4096);
  release(allocate(4096));
  end(run);
  CHECK(run.finish().deviation);
  pool->release(*loan.region);
  CHECK(pool->stats().escaped == 1);
  CHECK(pool->acquire(64, 0).answer == Pool::Answer::refused);  // nobody is put on top of it
  pool->trim();
  std::memset(kept, 7, 4096);
  pool.reset();  // it outlives even the pool
  std::memset(kept, 8, 4096);
  release(kept);
  const auto before = unknown_frees();
  release(kept);
  CHECK(unknown_frees() == before + 1);
}

void test_pool() {
  Pool pool(2, true, false);
  const auto first = pool.acquire(1000, 0);
  CHECK(first.answer == Pool::Answer::lent);
  std::atomic<int> stage{0};
  std::thread other([&] {
    const auto second = pool.acquire(2000, 0);
    CHECK(second.answer == Pool::Answer::lent && second.region != first.region);
    stage = 1;
    while (stage != 2) std::this_thread::yield();
    pool.release(*second.region);
  });
  while (stage != 1) std::this_thread::yield();
  CHECK(pool.acquire(10, 0).answer == Pool::Answer::refused);  // it would wait for itself
  std::thread([&] { CHECK(pool.acquire(10, 0.01).answer == Pool::Answer::busy); }).join();
  stage = 2;
  other.join();
  pool.release(*first.region);
  const auto grown = pool.acquire(1 << 20, 0);
  CHECK(grown.region->capacity() >= 1 << 20);
  std::memset(grown.region->base(), 5, 1 << 20);
  pool.trim();  // not what is lent
  CHECK(grown.region->base()[17] == std::byte{5});
  pool.release(*grown.region);
  pool.trim();
  CHECK(grown.region->base()[17] == std::byte{0});
  pool.shrink(4096);
  CHECK(pool.stats().largest == 4096 && pool.stats().regions == 2);
}

// Eight threads, two shapes, two regions, outputs handed from thread to thread.
void test_threads() {
  std::mt19937 random(2);
  std::vector<std::vector<Call>> shapes{random_calls(random, 50), random_calls(random, 80)};
  std::vector<std::unique_ptr<Tape>> tapes;
  for (const auto& calls : shapes) {
    const Trace trace = record(calls);
    tapes.push_back(std::make_unique<Tape>(trace, place_in_sequence(trace), 0, false));
  }
  Pool pool(2, true, false);
  std::vector<std::thread> threads;
  threads.reserve(8);
  std::mutex lock;
  std::vector<void*> handed;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int turn = 0; turn < 30; ++turn) {
        const std::size_t shape = static_cast<std::size_t>(turn + t) % 2;
        CHECK(!replay(*tapes[shape], pool, shapes[shape], static_cast<unsigned char>(t)).deviation);
        void* output = allocate(200'000);
        const std::scoped_lock guard(lock);
        handed.push_back(output);
        release(handed.front());
        handed.erase(handed.begin());
        if (turn % 7 == 0) trim_all();
      }
    });
  for (auto& thread : threads) thread.join();
  for (void* block : handed) release(block);
  CHECK(pool.stats().lent == 0 && pool.stats().escaped == 0 && heap().live_blocks() == 0);
}

void test_stray_free() {
  const Trace trace{{4096, 64}, {0, 1}, {2, 3}};
  const Tape tape(trace, {0, 4096}, 0, false);
  Pool pool(1, true, false);
  const auto loan = pool.acquire(tape.peak(), 0);
  ReplayingRun run(tape, *loan.region);
  begin(run);
  void* block = allocate(4096);
  void* other = allocate(64);
  std::thread([&] { release(block); }).join();  // another thread than the one that runs
  release(other);
  end(run);
  CHECK(run.finish().deviation);
  pool.release(*loan.region);
  CHECK(pool.stats().escaped == 0);
}

void test_fork() {
  watch_forks();
  Pool pool(1, true, false);
  Pool::Loan loan{};
  std::thread([&] { loan = pool.acquire(4096, 0); }).join();
  const pid_t child = fork();
  if (child == 0) {
    // The thread that ran in it does not exist here, so its region is free.
    const bool well = pool.acquire(4096, 0).answer == Pool::Answer::lent;
    void* block = allocate(300'000);
    release(block);
    _exit(well ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  pool.release(*loan.region);
}

}  // namespace

// With one argument only what threads do at the same time: for ThreadSanitizer, which looks for nothing else and does
// not follow a fork. With FILE INPUTS SEED these instead of the tests.
int main(int count, char** words) {
  if (count == 4) return run_inputs(words[1], std::atol(words[2]), std::strtoul(words[3], nullptr, 10));
  const bool threads_only = count > 1;
  if (!threads_only) {
    test_heap();
    test_recycler();
    test_wrong_tapes();
    test_replay_and_deviations();
    test_shared_places();
    test_recording_in_a_region();
    test_overrun_is_seen();
    test_escape();
    test_stray_free();
  }
  test_pool();
  test_threads();
  test_outputs(threads_only);
  test_devices();
  if (!threads_only) test_fork();
  std::puts("ok");
  return 0;
}
