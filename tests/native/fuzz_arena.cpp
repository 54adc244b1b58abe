// The allocator, driven by the bytes of an input: runs that follow their plans or do not, outputs that are held on to
// and freed at any moment, regions that are trimmed, shrunk and given up in between, on the host and on a device.
// Whoever holds a buffer finds in it what it wrote, whatever happened since. Built for threads, three of them share the
// regions and free each other's outputs.
#include <algorithm>
#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "arena_outputs.hpp"
#include "arena_play_device.hpp"
#include "fuzz_source.hpp"

using namespace onnxmem::arena;

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr int kThreads = 3;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr int kThreads = 3;
#else
constexpr int kThreads = 1;
#endif
#else
constexpr int kThreads = 1;
#endif

// Some bytes, among them the last one: enough to see whose it is. Touching every page would take most of the time.
template <typename Visit>
void some_bytes(std::size_t size, Visit visit) {
  for (std::size_t at = 0; at < size; at += size < 512 ? 7 : size < 8192 ? 1021 : 53'000) visit(at);
  visit(size - 1);
}

struct Held {
  unsigned char* block;
  std::size_t size;
  unsigned char stamp;
  bool written_over = false;

  void write() const {
    some_bytes(size, [&](std::size_t at) { block[at] = stamp; });
    // A kernel that writes one element too far, behind a buffer that fills its place.
    if (planted() && size % kAlignment == 0) block[size] = stamp;
  }
  void check() const {
    if (!written_over) some_bytes(size, [&](std::size_t at) { CHECK(block[at] == stamp); });
  }
};

// What a run asks for: as in a recording, some buffers are written over one of their size that is freed right after.
struct Shape {
  std::vector<Call> calls;
  std::vector<std::int64_t> over;
  std::unique_ptr<Tape> tape;
};

std::size_t size_from(Source& source) {
  switch (source.below(4)) {
    case 0: return 1 + source.below(256);
    case 1: return 64 * (1 + source.below(64));
    case 2: return 4096 * (1 + source.below(32)) + source.below(3) - 1;
    default: return kHandedFrom + 4096 * source.below(64) + source.below(3) - 1;
  }
}

void calls_from(Source& source, Shape& shape) {
  std::vector<std::pair<int, std::size_t>> alive;
  const int buffers = 1 + static_cast<int>(source.below(source.below(4) ? 4 : 14));
  for (int next = 0; next < buffers;) {
    const std::size_t what = alive.empty() ? 0 : source.below(8), k = alive.empty() ? 0 : source.below(alive.size());
    if (what < 4) {
      const std::size_t size = size_from(source);
      shape.calls.push_back({next, size});
      shape.over.push_back(-1);
      alive.emplace_back(next++, size);
    } else if (what < 5) {
      shape.calls.push_back({next, alive[k].second});
      shape.calls.push_back({alive[k].first, 0});
      shape.over.push_back(alive[k].first);
      alive[k].first = next++;
    } else {
      if (what < 7) shape.calls.push_back({alive[k].first, 0});  // or it outlives the run
      alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
  // What shares a place must end in the run.
  for (std::size_t after = 0; after < shape.over.size(); ++after)
    if (shape.over[after] >= 0 && std::none_of(shape.calls.begin(), shape.calls.end(), [&](const Call& call) {
          return call.size == 0 && call.buffer == static_cast<int>(after);
        }))
      shape.calls.push_back({static_cast<int>(after), 0});
}

// What a recording of these calls says.
Trace trace_of(const std::vector<Call>& calls) {
  Trace trace;
  for (std::size_t step = 0; step < calls.size(); ++step) {
    if (calls[step].size == 0) {
      trace.uppers[static_cast<std::size_t>(calls[step].buffer)] = static_cast<std::int64_t>(step);
      continue;
    }
    trace.sizes.push_back(static_cast<std::int64_t>(calls[step].size));
    trace.lowers.push_back(static_cast<std::int64_t>(step));
    trace.uppers.push_back(-1);
  }
  return trace;
}

// Offsets one after the other, as low as possible: slowly, and without what is checked here.
std::vector<std::int64_t> place(const Trace& trace, const std::vector<std::int64_t>& over, std::size_t guard) {
  const std::size_t count = trace.sizes.size();
  std::vector<std::int64_t> offsets(count, -1);
  const auto bytes = [&](std::size_t i) {
    return static_cast<std::int64_t>(footprint(static_cast<std::size_t>(trace.sizes[i])) + guard);
  };
  // How long a place is taken: until the last one that lies there is freed.
  std::vector<std::int64_t> until = trace.uppers;
  for (std::size_t i = count; i-- > 0;)
    if (over[i] >= 0) until[static_cast<std::size_t>(over[i])] = until[i];
  for (std::size_t i = 0; i < count; ++i) {
    if (until[i] < 0) continue;
    if (over[i] >= 0) {
      offsets[i] = offsets[static_cast<std::size_t>(over[i])];
      continue;
    }
    std::int64_t offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t j = 0; j < i; ++j)
        if (offsets[j] >= 0 && until[j] > trace.lowers[i] && offset < offsets[j] + bytes(j) &&
            offsets[j] < offset + bytes(i))
          offset = offsets[j] + bytes(j), moved = true;
    }
    offsets[i] = offset;
  }
  return offsets;
}

// The outputs that somebody holds, of all threads.
struct Pile {
  std::mutex lock;
  std::vector<Held> held;

  void add(const Held& one) {
    const std::scoped_lock guard(lock);
    held.push_back(one);
  }
  bool take(std::size_t choice, Held& one) {
    const std::scoped_lock guard(lock);
    if (held.empty()) return false;
    std::swap(held[choice % held.size()], held.back());
    one = held.back();
    held.pop_back();
    return true;
  }
  void check() {
    const std::scoped_lock guard(lock);
    for (const Held& each : held) each.check();
  }
};

void free_one(Source& source, Pile& pile) {
  Held one{};
  if (!pile.take(source.below(16), one)) return;
  one.check();
  release(one.block);
}

// What happens between two calls of a run, or between runs.
void disturb(Source& source, Pile& pile, Pool& pool) {
  switch (source.below(8)) {
    case 0: pool.trim(); break;
    case 1: pool.shrink(1 + source.below(1 << 20)); break;
    case 2: outputs().trim(); break;
    case 3: trim_all(); break;
    case 4: heap().trim(); break;
    default: free_one(source, pile); break;
  }
}

// Plays the calls of a shape; what is left at the end goes to the pile.
void play(Source& source, const Shape& shape, std::size_t until, bool calm, Pile& pile, Pool& pool) {
  std::vector<Held> mine(shape.over.size(), Held{});
  for (std::size_t step = 0; step < until; ++step) {
    const Call& call = shape.calls[step];
    Held& one = mine[static_cast<std::size_t>(call.buffer)];
    if (!calm && source.below(8) == 7) disturb(source, pile, pool);
    if (call.size == 0) {
      one.check();
      release(one.block);
      one.block = nullptr;
      continue;
    }
    one = {static_cast<unsigned char*>(allocate(call.size)), call.size,
           static_cast<unsigned char>(1 + source.below(255))};
    CHECK(one.block != nullptr && reinterpret_cast<std::uintptr_t>(one.block) % kAlignment == 0);
    // Where it lies at the place of another, that one's time is over; only one that was named may be there.
    for (std::size_t other = 0; other < mine.size(); ++other)
      if (mine[other].block == one.block && &mine[other] != &one) mine[other].written_over = true;
    one.write();
  }
  // Left by a run that broke off inside of a pair: the first of the two is not looked at any more.
  for (const Held& each : mine)
    if (each.block != nullptr && each.written_over) release(each.block);
  for (const Held& each : mine)
    if (each.block != nullptr && !each.written_over) pile.add(each);
}

Region* borrow(Pool& pool, std::size_t bytes) {
  Pool::Loan loan{};
  do loan = pool.acquire(bytes, 1.0);
  while (loan.answer == Pool::Answer::busy);
  return loan.region;  // null: all of them have escaped
}

// One run: of a shape by its own tape or another's, or recorded.
void run_one(Source& source, const std::vector<Shape>& shapes, Pile& pile, Pool& pool) {
  const Shape& shape = shapes[source.below(shapes.size())];
  const Tape& tape =
      *shapes[source.below(4) ? static_cast<std::size_t>(&shape - shapes.data()) : source.below(shapes.size())].tape;
  const bool calm = source.below(2) == 0, records = source.below(8) == 7;
  const std::size_t until = source.below(4) ? shape.calls.size() : source.below(shape.calls.size() + 1);
  Region* region = borrow(pool, records ? source.below(1 << 20) : tape.peak());
  if (region == nullptr || records) {
    RecordingRun run(true, region, {static_cast<std::int64_t>(source.below(8)), 9});
    begin(run);
    play(source, shape, until, calm, pile, pool);
    end(run);
    const Trace recorded = run.trace(), truth = shape.tape->trace();
    if (calm && until == shape.calls.size())
      CHECK(recorded.sizes == truth.sizes && recorded.lowers == truth.lowers && recorded.uppers == truth.uppers);
  } else {
    ReplayingRun run(tape, *region);
    begin(run);
    play(source, shape, until, calm, pile, pool);
    end(run);
    const Replayed result = run.finish();
    CHECK(result.overruns == 0 || planted());
    // What another tape expects may well be the beginning of this.
    CHECK(result.deviation || until == shape.calls.size() || &tape != shape.tape.get());
    CHECK(!result.deviation || &tape != shape.tape.get() || until != shape.calls.size());
  }
  if (region != nullptr) pool.release(*region);
  pile.check();
}

void work(Source& source, const std::vector<Shape>& shapes, Pile& pile, Pool& pool) {
  for (int turn = 0; turn < 12 && (turn == 0 || !source.empty()); ++turn) {
    if (source.below(3) == 2)
      disturb(source, pile, pool);
    else
      run_one(source, shapes, pile, pool);
  }
}

void on_the_host(Source& source, const std::uint8_t* data, std::size_t size) {
  const auto unknown = unknown_frees();
  const std::size_t guard = source.below(2) ? 64 : 0;
  const bool huge = source.below(8) == 7;
  std::vector<Shape> shapes(1 + (source.below(8) ? 0 : source.below(3)));
  for (Shape& shape : shapes) {
    calls_from(source, shape);
    const Trace trace = trace_of(shape.calls);
    shape.tape = std::make_unique<Tape>(trace, place(trace, shape.over, guard), guard, false, shape.over);
  }
  Pile pile;
  auto pool = std::make_unique<Pool>(2, true, huge);
  if (kThreads == 1) {
    work(source, shapes, pile, *pool);
    if (source.below(2)) pool.reset();  // what is held outlives it
    while (!pile.held.empty()) free_one(source, pile);
  } else {
    std::array<std::unique_ptr<Source>, kThreads> sources;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      const std::size_t from = size * static_cast<std::size_t>(t) / kThreads;
      sources[static_cast<std::size_t>(t)] = std::make_unique<Source>(data + from, size - from);
      threads.emplace_back([&, t] { work(*sources[static_cast<std::size_t>(t)], shapes, pile, *pool); });
    }
    for (std::thread& each : threads) each.join();
    while (!pile.held.empty()) free_one(source, pile);
  }
  if (pool) CHECK(pool->stats().escaped == 0 && pool->stats().lent == 0);
  CHECK(unknown_frees() == unknown);
  pool.reset();
  outputs().trim();
  heap().trim();
  CHECK(outputs().live_blocks() == 0 && outputs().live_bytes() == 0);
  CHECK(heap().live_blocks() == 0 && heap().live_bytes() == 0);
}

// The same on a device whose streams lag: a place that is used again too early shows in what its stream reads.
void on_a_device(Source& source) {
  Device& on = device(static_cast<int>(source.below(2)));
  const std::size_t before = stand_in_used();
  {
    std::vector<Shape> shapes(1 + source.below(2));
    for (Shape& shape : shapes) {
      calls_from(source, shape);
      shape.tape = std::make_unique<Tape>(device_tape(trace_of(shape.calls)));
    }
    Pool pool(2, true, false, &on);
    for (int turn = 0; turn < 10 && !source.empty(); ++turn) {
      const std::size_t k = source.below(shapes.size()), by = source.below(4) ? k : source.below(shapes.size());
      const int stream = static_cast<int>(source.below(3));
      // A host that does not wait for the device must not say that it is done; the defect is one that does.
      const bool waits = source.below(2) == 0, settled = planted() || (waits && source.below(4) != 0);
      const Replayed result = replay_on(*shapes[by].tape, pool, stream, shapes[k].calls, turn, waits, settled);
      CHECK(!result.deviation || by != k);
      switch (source.below(8)) {
        case 0: pool.trim(); break;
        case 1: pool.shrink(source.below(1 << 20)); break;
        case 2: on.trim(); break;
        case 3: on.settle(); break;
        case 4: stand_in_wait(stream); break;
        default: break;
      }
    }
    CHECK(pool.stats().escaped == 0);
  }
  stand_in_wait(-1);
  on.settle();
  on.trim();
  CHECK(stand_in_faults() == 0);
  CHECK(on.stats().live_blocks == 0 && stand_in_used() == before);
}

// Plans as strangers might write them: refused, or good to run.
void any_tape(Source& source) {
  const std::int64_t numbers[] = {-1, 0, 1, 2, 3, 4, 5, 6, 64, 128, 192, 256, INT64_MAX - 63, INT64_MAX, INT64_MIN};
  const auto column = [&](std::size_t count) {
    std::vector<std::int64_t> values(count);
    for (std::int64_t& each : values) each = numbers[source.below(std::size(numbers))];
    return values;
  };
  const std::size_t count = source.below(5);
  Trace trace{column(count), column(count), column(count)};
  if (source.below(2))
    for (std::size_t i = 0; i < count; ++i) {
      trace.lowers[i] = static_cast<std::int64_t>(i);
      trace.uppers[i] = source.below(4) ? static_cast<std::int64_t>(2 * count - i + source.below(2) * count) : -1;
    }
  auto offsets = column(count), over = source.below(2) ? column(count) : std::vector<std::int64_t>{};
  const std::size_t guard = source.below(3) * 64;
  std::vector<std::int64_t> places = offsets;
  try {
    const Tape tape(trace, std::move(offsets), guard, source.below(2) == 0, over, source.below(4) ? 64 : 256);
    const Trace read = tape.trace();
    for (std::size_t a = 0; a < count; ++a)
      for (std::size_t b = 0; b < count; ++b) {
        if (a == b || places[a] < 0 || places[b] < 0) continue;
        const auto ends = [&](std::size_t i) { return read.uppers[i] < 0 ? INT64_MAX : read.uppers[i]; };
        const bool meet = read.lowers[a] < ends(b) && read.lowers[b] < ends(a);
        const bool pair =
            !over.empty() && (over[a] == static_cast<std::int64_t>(b) || over[b] == static_cast<std::int64_t>(a));
        CHECK(!meet || pair || places[a] >= places[b] + read.sizes[b] || places[b] >= places[a] + read.sizes[a]);
      }
  } catch (const std::invalid_argument&) {}
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Source source(data, size);
  const std::size_t where = source.below(16);
  if (where == 15)
    any_tape(source);
  else if (where > 12)
    on_a_device(source);
  else
    on_the_host(source, data, size);
  return 0;
}
