// Outputs that get the pages of their run's region, against slow references: which pages they may have, page by page;
// and what everybody holds, byte by byte, whatever is run, freed, trimmed, grown or shrunk in between.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "arena_outputs.hpp"
#include "arena_play.hpp"

namespace {
thread_local bool no_moves = false;  // as where there are as many mappings as there may be
}

extern "C" void* mremap(void* from, std::size_t before, std::size_t after, int flags, ...) noexcept {
  va_list rest;
  va_start(rest, flags);
  void* to = va_arg(rest, void*);
  va_end(rest);
  if (no_moves) return errno = ENOMEM, MAP_FAILED;
  return reinterpret_cast<void*>(syscall(SYS_mremap, from, before, after, flags, to));
}

namespace onnxmem::arena {

namespace {

constexpr std::size_t kPage = 4096;

// Some buffers are large, and some of those are never freed.
std::vector<Call> large_calls(std::mt19937& random, int buffers) {
  std::vector<Call> calls = random_calls(random, buffers);
  for (Call& call : calls)
    if (call.size != 0 && random() % 4 == 0) call.size = 1 + random() % 400'000;
  return calls;
}

std::unique_ptr<Tape> tape_of(const std::vector<Call>& calls, std::size_t guard) {
  const Trace trace = record(calls);
  Trace padded = trace;
  for (auto& size : padded.sizes) size = static_cast<std::int64_t>(footprint(static_cast<std::size_t>(size)) + guard);
  return std::make_unique<Tape>(trace, place_in_sequence(padded), guard, false);
}

void check_pages(const Tape& tape) {
  const Trace trace = tape.trace();
  const std::size_t pages = whole_pages(tape.peak()) / kPage;
  std::vector<std::vector<bool>> taken;
  std::vector<std::size_t> order(trace.sizes.size());
  for (std::size_t k = 0; k < order.size(); ++k) order[k] = k;
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return trace.lowers[a] < trace.lowers[b]; });
  std::vector<bool> gone(pages, false);
  for (const std::size_t output : order) {
    const auto* planned = tape.pages_for(static_cast<std::uint32_t>(output));
    const std::size_t size = static_cast<std::size_t>(trace.sizes[output]);
    if (tape.offsets()[output] >= 0 || trace.uppers[output] != -1 || size < kHandedFrom) {
      CHECK(planned == nullptr);
      continue;
    }
    std::vector<bool> busy = gone;
    for (std::size_t each = 0; each < order.size(); ++each) {
      const std::int64_t offset = tape.offsets()[each], upper = trace.uppers[each];
      if (offset < 0 || (upper != -1 && upper < trace.lowers[output])) continue;
      const std::size_t start = static_cast<std::size_t>(offset);
      const std::size_t end = start + footprint(static_cast<std::size_t>(trace.sizes[each])) + tape.guard();
      for (std::size_t page = start / kPage; page * kPage < end; ++page) busy[page] = true;
    }
    std::size_t longest = 0, given = 0;
    for (std::size_t page = 0, row = 0; page < pages; ++page) {
      row = busy[page] ? 0 : row + 1;
      longest = std::max(longest, row * kPage);
    }
    for (const Pages& part : planned ? *planned : std::vector<Pages>{}) {
      CHECK(part.start % kPage == 0 && part.bytes % kPage == 0 && part.end() <= pages * kPage);
      for (std::size_t page = part.start / kPage; page * kPage < part.end(); ++page) {
        CHECK(!busy[page] && !gone[page]);
        gone[page] = true;
      }
      given += part.bytes;
    }
    CHECK(given <= whole_pages(size));
    if (longest >= kHandedFrom) CHECK(given >= std::min(longest, whole_pages(size)));
  }
}

struct Held {
  unsigned char* block;
  std::size_t size;
  unsigned char stamp;
};

void check(const Held& held) {
  for (std::size_t at = 0; at < held.size; at += 509) CHECK(held.block[at] == held.stamp);
  CHECK(held.block[held.size - 1] == held.stamp);
}

// A run whose outputs are held on to.
void hold(const Tape& tape, Pool& pool, const std::vector<Call>& calls, unsigned char stamp, std::vector<Held>& held) {
  Pool::Loan loan{};
  do loan = pool.acquire(tape.peak(), 1.0);
  while (loan.answer == Pool::Answer::busy);
  ReplayingRun run(tape, *loan.region);
  begin(run);
  const auto left = play(calls, stamp, 509);
  end(run);
  CHECK(!run.finish().deviation);
  pool.release(*loan.region);
  std::vector<std::size_t> sizes;
  std::vector<int> freed;
  for (const Call& call : calls)
    if (call.size == 0) freed.push_back(call.buffer);
  for (const Call& call : calls)
    if (call.size != 0 && std::find(freed.begin(), freed.end(), call.buffer) == freed.end())
      held.push_back({static_cast<unsigned char*>(left[sizes.size()]), call.size,
                      static_cast<unsigned char>(stamp + call.buffer)}),
          sizes.push_back(call.size);
  CHECK(sizes.size() == left.size());
}

void fuzz(unsigned seed, bool huge) {
  std::mt19937 random(seed);
  std::vector<std::vector<Call>> shapes;
  std::vector<std::unique_ptr<Tape>> tapes;
  for (int k = 0; k < 4; ++k) {
    shapes.push_back(large_calls(random, 16));
    tapes.push_back(tape_of(shapes.back(), k % 2 ? 64 : 0));
    check_pages(*tapes.back());
  }
  auto pool = std::make_unique<Pool>(2, true, huge);
  std::vector<Held> held;
  for (int turn = 0; turn < 30; ++turn) {
    const std::size_t k = random() % tapes.size();
    hold(*tapes[k], *pool, shapes[k], static_cast<unsigned char>(turn), held);
    const std::size_t keep = random() % 12;
    while (held.size() > keep) {
      const std::size_t at = random() % held.size();
      const Held each = held[at];
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
      check(each);
      if (random() % 4 == 0) {
        std::thread([&] { release(each.block); }).join();
      } else if (random() % 4 == 0) {
        // While somebody runs where it came from.
        const auto loan = pool->acquire(tapes[0]->peak(), 0);
        release(each.block);
        pool->release(*loan.region);
      } else {
        release(each.block);
      }
    }
    switch (random() % 8) {
      case 0: pool->trim(); break;
      case 1: pool->shrink(1 + random() % tapes[0]->peak()); break;
      case 2: outputs().trim(); break;
      case 3: pool = std::make_unique<Pool>(2, true, huge); break;
      default: break;
    }
    for (const Held& each : held) check(each);
  }
  for (const Held& each : held) release(each.block);
  outputs().trim();
  CHECK(outputs().live_blocks() == 0 && outputs().live_bytes() == 0);
}

// Threads that run in two regions and free each other's outputs.
void test_threads_of_outputs() {
  std::mt19937 random(11);
  const auto calls = large_calls(random, 16);
  const auto tape = tape_of(calls, 0);
  Pool pool(2, true, false);
  std::mutex lock;
  std::vector<Held> shared;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int turn = 0; turn < 12; ++turn) {
        std::vector<Held> mine;
        hold(*tape, pool, calls, static_cast<unsigned char>(16 * t + turn), mine);
        {
          const std::scoped_lock guard(lock);
          shared.insert(shared.end(), mine.begin(), mine.end());
          mine.assign(shared.begin(), shared.begin() + static_cast<std::ptrdiff_t>(shared.size() / 2));
          shared.erase(shared.begin(), shared.begin() + static_cast<std::ptrdiff_t>(mine.size()));
        }
        for (const Held& each : mine) {
          check(each);
          release(each.block);
        }
        if (turn % 5 == 0) trim_all();
        if (turn % 5 == 1) outputs().trim();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const Held& each : shared) {
    check(each);
    release(each.block);
  }
  outputs().trim();
  CHECK(outputs().live_blocks() == 0);
}

// One output, handed over from the middle of a region, and back.
void test_there_and_back(std::size_t large, bool huge) {
  const std::int64_t size = static_cast<std::int64_t>(large);
  const Tape tape({{size, size, size}, {0, 1, 3}, {2, 4, -1}}, {0, size, -1}, 0, false);
  CHECK(tape.pages_for(2) != nullptr && tape.pages_for(2)->size() == 1);
  const Pages part = tape.pages_for(2)->front();
  CHECK(part.start == 0 && part.bytes == large);  // what the first buffer left, while the second is alive
  Pool pool(1, true, huge);
  const auto resident = [](const std::byte* at) {
    unsigned char there = 0;
    CHECK(mincore(const_cast<std::byte*>(at), kPage, &there) == 0);
    return (there & 1) != 0;
  };
  const std::vector<Call> calls{{0, large}, {1, large}, {0, 0}, {2, large}, {1, 0}};
  std::vector<Held> held;
  hold(tape, pool, calls, 1, held);
  const auto loan = pool.acquire(1, 0);
  const std::byte* base = loan.region->base() + large / 2;  // within a huge page that moves whole
  pool.release(*loan.region);
  hold(tape, pool, calls, 1, held);
  CHECK(held.size() == 2 && !loan.region->holds(held[0].block) && !loan.region->holds(held[1].block));
  CHECK(!resident(base) && resident(base + large));  // its pages are the output's
  release(held[0].block);                            // which come back, whichever output had them
  CHECK(resident(base) && loan.region->holes.empty());
  check(held[1]);
  release(held[1].block);  // and there is no room for others
  CHECK(resident(base) && outputs().live_bytes() == 0);
  held.clear();
  hold(tape, pool, calls, 1, held);
  pool.trim();
  release(held[0].block);
  CHECK(!resident(base));  // what was trimmed does not come back
}

std::size_t missing(const Region& region) {
  std::size_t bytes = 0;
  for (const Pages& hole : region.holes) bytes += hole.bytes;
  return bytes;
}

// A run that leaves its tape goes on in the pages that are free in its region, and in no others.
void test_off_the_tape() {
  constexpr std::size_t large = 1 << 20;
  constexpr std::int64_t size = large;
  const Tape tape({{size, size, size, size}, {0, 1, 2, 3}, {4, 5, 6, 7}}, {0, size, 2 * size, 3 * size}, 0, false);
  Pool pool(1, true, false);
  const auto loan = pool.acquire(tape.peak(), 0);
  ReplayingRun run(tape, *loan.region);
  begin(run);
  void* placed = allocate(large);
  std::memset(placed, 1, large);
  std::vector<Held> others;
  const std::int64_t before = heap().live_bytes();
  for (const std::size_t other : {large / 2, large + 1, large, large / 4}) {
    auto* block = static_cast<unsigned char*>(allocate(other));
    std::memset(block, 7, other);
    others.push_back({block, other, 7});
  }
  CHECK(missing(*loan.region) == whole_pages(large + 1) + large + large / 2 + large / 4);
  CHECK(heap().live_bytes() == before);
  release(placed);
  auto* last = static_cast<unsigned char*>(allocate(large));  // where the placed one was
  std::memset(last, 7, large);
  others.push_back({last, large, 7});
  CHECK(heap().live_bytes() == before);
  for (const Held& each : others) check(each);
  for (std::size_t k = 1; k < others.size(); ++k) release(others[k].block);
  CHECK(missing(*loan.region) == large / 2);  // the others' pages are back while it still runs
  end(run);
  CHECK(run.finish().deviation);
  pool.release(*loan.region);
  CHECK(pool.stats().escaped == 0);  // what outlived the run does not keep others out
  check(others[0]);
  release(others[0].block);
  CHECK(loan.region->holes.empty() && outputs().live_blocks() == 0);
}

// Pages that cannot go back while a run goes on around the place they came from.
void test_pages_that_cannot_move(bool escapes) {
  constexpr std::size_t large = 1 << 20;
  constexpr std::int64_t size = large;
  const Tape tape({{size, size, size}, {0, 1, 3}, {2, 5, 4}}, {0, size, 0}, 0, false);
  Pool pool(1, true, false);
  const auto loan = pool.acquire(tape.peak(), 0);
  ReplayingRun run(tape, *loan.region);
  begin(run);
  void* first = allocate(large);
  auto* above = static_cast<unsigned char*>(allocate(large));
  std::memset(above, 5, large);
  release(first);
  auto* other = static_cast<unsigned char*>(allocate(large / 2));  // not on the tape: gets pages from below
  std::memset(other, 6, large / 2);
  CHECK(missing(*loan.region) == large / 2);
  no_moves = true;
  release(other);
  no_moves = false;
  check({above, large, 5});
  const Held last{static_cast<unsigned char*>(allocate(large)), large, 7};
  std::memset(last.block, 7, large);
  CHECK(!loan.region->holds(last.block) || last.block >= above + large);
  check({above, large, 5});
  if (!escapes) release(above);
  end(run);
  pool.release(*loan.region);
  if (escapes) {
    check({above, large, 5});
    release(above);
  }
  CHECK(pool.stats().bytes == 0 && pool.stats().escaped == 0);  // it is given up, and there is a new one
  check(last);
  release(last.block);
  std::vector<Held> held;
  hold(tape, pool, {{0, large}, {1, large}, {0, 0}, {2, large}, {2, 0}, {1, 0}}, 1, held);
  CHECK(held.empty() && outputs().live_blocks() == 0);
}

// Runs of other shapes than the tape's, and recordings in a region that is too small, which keep what they made.
void fuzz_off_the_tape(unsigned seed) {
  std::mt19937 random(seed);
  const auto recorded = large_calls(random, 16);
  const auto tape = tape_of(recorded, seed % 2 ? 64 : 0);
  Pool pool(1, true, false);
  for (int turn = 0; turn < 12; ++turn) {
    const auto calls = turn % 3 == 0 ? recorded : large_calls(random, 20);
    Region* region = pool.acquire(turn % 2 ? tape->peak() : 0, 0).region;
    std::unique_ptr<Run> run;
    if (turn % 2)
      run = std::make_unique<ReplayingRun>(*tape, *region);
    else
      run = std::make_unique<RecordingRun>(true, region, std::vector<std::int64_t>{1, 5, 7});
    begin(*run);
    const auto left = play(calls, static_cast<unsigned char>(turn), 509);
    end(*run);
    pool.release(*region);
    for (void* block : left) release(block);
    CHECK(pool.stats().escaped == 0 && outputs().live_blocks() == 0);
  }
}

void test_fork_of_outputs() {
  constexpr std::size_t large = 1 << 20;
  const Tape tape({{large, large}, {0, 2}, {1, -1}}, {0, -1}, 0, false);
  Pool pool(1, true, false);
  std::vector<Held> held;
  const std::vector<Call> calls{{0, large}, {0, 0}, {1, large}};
  hold(tape, pool, calls, 1, held);
  const pid_t child = fork();
  if (child == 0) {
    check(held[0]);
    release(held[0].block);
    held.clear();
    for (int turn = 0; turn < 3; ++turn) hold(tape, pool, calls, static_cast<unsigned char>(turn), held);
    for (const Held& each : held) check(each);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  check(held[0]);
  release(held[0].block);
}

}  // namespace

void test_outputs(bool threads_only) {
  CHECK(pages_move());
  test_threads_of_outputs();
  if (threads_only) return;
  test_there_and_back(1 << 20, false);
  test_there_and_back(6 << 20, true);
  for (unsigned seed = 0; seed < 4; ++seed) fuzz(seed, seed % 3 == 2);
  test_off_the_tape();
  for (const bool escapes : {false, true}) test_pages_that_cannot_move(escapes);
  for (unsigned seed = 0; seed < 6; ++seed) fuzz_off_the_tape(seed);
  test_fork_of_outputs();
}

}  // namespace onnxmem::arena
