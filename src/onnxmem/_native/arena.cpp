// The Python face of the allocator: tapes and pools to make, runs to begin and end. Allocation itself never comes
// through here, so it needs no interpreter and no interpreter lock.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <malloc.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arena_bridge.hpp"
#include "arena_heap.hpp"
#include "arena_region.hpp"
#include "arena_run.hpp"
#include "arena_tape.hpp"

namespace nb = nanobind;
using namespace onnxmem::arena;

namespace {

using Column = nb::ndarray<const std::int64_t, nb::numpy, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Copied = nb::ndarray<std::int64_t, nb::numpy, nb::shape<-1>, nb::c_contig>;

std::vector<std::int64_t> values(const Column& column) { return {column.data(), column.data() + column.shape(0)}; }

Copied copied(const std::vector<std::int64_t>& values) {
  auto* data = new std::int64_t[values.size()];
  std::copy(values.begin(), values.end(), data);
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<std::int64_t*>(p); });
  return Copied(data, {values.size()}, owner);
}

nb::tuple columns(const Trace& trace) {
  return nb::make_tuple(copied(trace.sizes), copied(trace.lowers), copied(trace.uppers));
}

// What the calling thread has begun and must end, innermost last. Objects on this stack stay where they are.
struct Begun {
  std::unique_ptr<Run> run;
  std::shared_ptr<Tape> tape;
  std::shared_ptr<Pool> pool;
  Region* region = nullptr;
};
thread_local std::vector<Begun> begun;

void push(Begun item) {
  begun.push_back(std::move(item));
  begin(*begun.back().run);
}

Begun pop() {
  if (begun.empty()) throw std::logic_error("no run has begun in this thread");
  Begun item = std::move(begun.back());
  begun.pop_back();
  end(*item.run);
  return item;
}

void begin_heap() { push({std::make_unique<HeapRun>(), nullptr, nullptr}); }

void begin_record(bool limited) { push({std::make_unique<RecordingRun>(limited), nullptr, nullptr}); }

// As `begin_record`, in a region of the pool; false if there is none to be had, and the run is on the heap.
bool begin_record_inside(std::shared_ptr<Pool> pool, std::size_t size, Column outlasting) {
  Region* region = pool->borrow(size);
  if (region == nullptr) {
    begin_record(true);
    return false;
  }
  push({std::make_unique<RecordingRun>(true, region, values(outlasting)), nullptr, std::move(pool), region});
  return true;
}

// False: there was no region to be had, and the run is served from the heap.
bool begin_replay(std::shared_ptr<Tape> tape, std::shared_ptr<Pool> pool) {
  Pool::Loan loan{};
  do {
    nb::gil_scoped_release unlocked;
    const bool again = loan.answer == Pool::Answer::busy;
    loan = pool->acquire(tape->peak(), again ? 0.1 : 0.0, again);
    if (loan.answer == Pool::Answer::busy) {
      nb::gil_scoped_acquire locked;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();  // Ctrl-C while waiting
    }
  } while (loan.answer == Pool::Answer::busy);
  if (loan.answer == Pool::Answer::refused) {
    begin_heap();
    return false;
  }
  auto run = std::make_unique<ReplayingRun>(*tape, *loan.region);
  push({std::move(run), std::move(tape), std::move(pool), loan.region});
  return true;
}

// None for a run on the heap; (sizes, lowers, uppers) for a recorded one, None if that was given up; for a replayed one
// its deviation as (what, step, expected bytes, bytes asked for, overruns), or None.
nb::object finish() {
  const Begun item = pop();
  if (auto* recording = dynamic_cast<RecordingRun*>(item.run.get())) {
    if (item.region != nullptr) item.pool->release(*item.region);
    if (!recording->complete()) return nb::none();
    return columns(recording->trace());
  }
  auto* replaying = dynamic_cast<ReplayingRun*>(item.run.get());
  if (replaying == nullptr) return nb::none();
  const Verdict verdict = replaying->finish();
  item.pool->release(*item.region);
  if (verdict.deviation.what == nullptr && verdict.overruns == 0) return nb::none();
  const char* what = verdict.deviation.what != nullptr ? verdict.deviation.what : "";
  return nb::make_tuple(what, verdict.deviation.step, verdict.deviation.expected, verdict.deviation.got,
                        verdict.overruns);
}

nb::dict pool_stats(const Pool& pool) {
  const PoolStats stats = pool.stats();
  nb::dict found;
  found["regions"] = stats.regions;
  found["bytes"] = stats.bytes;
  found["largest"] = stats.largest;
  found["lent"] = stats.lent;
  found["escaped"] = stats.escaped;
  found["waits"] = stats.waits;
  found["refusals"] = stats.refusals;
  return found;
}

nb::dict heap_stats() {
  nb::dict found;
  found["live_bytes"] = heap().live_bytes();
  found["live_blocks"] = heap().live_blocks();
  found["unknown_frees"] = unknown_frees();
  return found;
}

// What outputs and small blocks left behind when they were freed goes back to the system.
void trim_heap() {
  nb::gil_scoped_release unlocked;
  heap().trim();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void make_classes(nb::module_& module) {
  nb::class_<Tape>(module, "Tape")
      .def(
          "__init__",
          [](Tape* self, Column sizes, Column lowers, Column uppers, Column offsets, std::size_t guard, bool cut) {
            new (self) Tape({values(sizes), values(lowers), values(uppers)}, values(offsets), guard, cut);
          },
          nb::arg("sizes"), nb::arg("lowers"), nb::arg("uppers"), nb::arg("offsets"), nb::arg("guard") = 0,
          nb::arg("cut") = false)
      .def_prop_ro("peak", &Tape::peak)
      .def_prop_ro("cut", &Tape::cut)
      .def_prop_ro("steps", [](const Tape& tape) { return tape.events().size(); })
      .def_prop_ro(
          "offsets", [](const Tape& tape) { return copied(tape.offsets()); }, nb::rv_policy::move)
      .def_prop_ro("trace", [](const Tape& tape) { return columns(tape.trace()); });

  nb::class_<Pool>(module, "Pool")
      .def(nb::init<std::size_t, bool, bool>(), nb::arg("limit"), nb::arg("waits"), nb::arg("huge"))
      .def("trim", &Pool::trim)
      .def("shrink", &Pool::shrink, nb::arg("size"))
      .def("stats", &pool_stats);
}

}  // namespace

NB_MODULE(arena, module) {
  // Sessions may well be alive when the interpreter ends; that is not worth a message.
  nb::set_leak_warnings(false);

  if (nb::type<Tape>().is_valid()) {
    // Imported a second time in one process: classes can be made only once.
    module.attr("Tape") = nb::type<Tape>();
    module.attr("Pool") = nb::type<Pool>();
  } else {
    make_classes(module);
  }

  module.def(
      "place_in_sequence",
      [](Column sizes, Column lowers, Column uppers) {
        return copied(place_in_sequence({values(sizes), values(lowers), values(uppers)}));
      },
      nb::arg("sizes"), nb::arg("lowers"), nb::arg("uppers"));
  module.def("connected", &connected);
  module.def("enlist", &enlist);
  module.def("withdraw", &withdraw);
  module.def("begin_heap", &begin_heap);
  module.def("begin_record", &begin_record, nb::arg("limited") = true);
  module.def("begin_record_inside", &begin_record_inside, nb::arg("pool"), nb::arg("size"), nb::arg("outlasting"));
  module.def("begin_replay", &begin_replay, nb::arg("tape"), nb::arg("pool"));
  module.def("finish", &finish);
  module.def("heap_stats", &heap_stats);
  module.def("trim_heap", &trim_heap);

  // The allocator's entry points by address, so that tests can play the part of ONNX Runtime.
  module.def("allocate", [](std::size_t size) { return reinterpret_cast<std::uintptr_t>(allocate(size)); });
  module.def("release", [](std::uintptr_t address) { release(reinterpret_cast<void*>(address)); });
}
