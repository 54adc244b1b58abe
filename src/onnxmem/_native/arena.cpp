// The Python face of the allocator: tapes and pools to make, runs to begin and end. Allocation itself never comes
// through here, so it needs no interpreter and no interpreter lock.
#include <malloc.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arena_bridge.hpp"
#include "arena_device.hpp"
#include "arena_heap.hpp"
#include "arena_outputs.hpp"
#include "arena_region.hpp"
#include "arena_run.hpp"
#include "arena_tape.hpp"

namespace nb = nanobind;
using namespace onnxmem::arena;

namespace {

using Column = nb::ndarray<const std::int64_t, nb::numpy, nb::shape<-1>, nb::c_contig, nb::device::cpu>;

std::vector<std::int64_t> values(const Column& column) { return {column.data(), column.data() + column.shape(0)}; }

// The numbers as an array that owns them.
nb::object array(std::vector<std::int64_t> values) {
  using Array = nb::ndarray<std::int64_t, nb::numpy, nb::shape<-1>, nb::c_contig>;
  auto held = std::make_unique<std::vector<std::int64_t>>(std::move(values));
  std::int64_t* data = held->data();
  const std::size_t count = held->size();
  nb::capsule owner(held.get(), [](void* p) noexcept { delete static_cast<std::vector<std::int64_t>*>(p); });
  held.release();  // NOLINT(bugprone-unused-return-value): the capsule owns it now
  return nb::cast(Array(data, {count}, owner));
}

// A trace for Python, column by column; without any, if so many calls were made that writing them down was given up.
struct Recorded {
  bool complete;
  std::int64_t marks;
  std::size_t alignment;
  nb::object sizes, lowers, uppers;
};

Recorded recorded(Trace trace, std::size_t alignment, std::int64_t marks = 0) {
  return {true,
          marks,
          alignment,
          array(std::move(trace.sizes)),
          array(std::move(trace.lowers)),
          array(std::move(trace.uppers))};
}

struct HeapStats {
  std::int64_t live_bytes, live_blocks;
  std::uint64_t unknown_frees;
};

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

void begin_heap(Device* device) { push({std::make_unique<HeapRun>(device), nullptr, nullptr}); }

void begin_record(bool limited, Device* device) {
  push({std::make_unique<RecordingRun>(limited, nullptr, std::vector<std::int64_t>{}, device), nullptr, nullptr});
}

// A region of the pool, waited for as long as it takes; Ctrl-C ends that.
Pool::Loan borrow(Pool& pool, std::size_t size) {
  Pool::Loan loan{};
  do {
    nb::gil_scoped_release unlocked;
    const bool again = loan.answer == Pool::Answer::busy;
    loan = pool.acquire(size, again ? 0.1 : 0.0, again);
    if (loan.answer == Pool::Answer::busy) {
      nb::gil_scoped_acquire locked;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
  } while (loan.answer == Pool::Answer::busy);
  return loan;
}

// Begin the run that `make` makes of a region that the pool lent; the region goes back if there is no memory for it.
template <typename Make>
void push_into(std::shared_ptr<Pool> pool, std::shared_ptr<Tape> tape, Region& region, const Make& make) {
  try {
    push({make(), std::move(tape), pool, &region});
  } catch (...) {
    pool->release(region);
    throw;
  }
}

// As `begin_record`, in a region of the pool; false if there is none to be had, and the run is on the heap. It is
// there, too, if no size is asked for and no region has been used, but it has its turn: no more runs at once than the
// pool has regions.
bool begin_record_inside(std::shared_ptr<Pool> pool, std::size_t size, const Column& outlasting) {
  const Pool::Loan loan = borrow(*pool, size);
  if (loan.answer == Pool::Answer::refused) {
    begin_record(true, pool->device());
    return false;
  }
  Region* inside = loan.region->capacity() > whole_pages(1) ? loan.region : nullptr;
  push_into(pool, nullptr, *loan.region,
            [&] { return std::make_unique<RecordingRun>(true, inside, values(outlasting), pool->device()); });
  return inside != nullptr;
}

// False: there was no region to be had, and the run is served from the heap.
bool begin_replay(std::shared_ptr<Tape> tape, std::shared_ptr<Pool> pool) {
  const Pool::Loan loan = borrow(*pool, tape->peak());
  if (loan.answer == Pool::Answer::refused) {
    begin_heap(pool->device());
    return false;
  }
  push_into(pool, tape, *loan.region, [&] { return std::make_unique<ReplayingRun>(*tape, *loan.region); });
  return true;
}

// What became of the run that the calling thread began last: Recorded, Replayed, or None for one on the heap.
// `settled`: a device has done all of it.
nb::object end_run(bool settled) {
  const Begun item = pop();
  Device* const device = item.run->device;
  if (device != nullptr) device->ended(item.run->number, settled);
  if (auto* recording = dynamic_cast<RecordingRun*>(item.run.get())) {
    if (item.region != nullptr) {
      item.pool->release(*item.region, settled || device == nullptr);
      // What did not fit into the region; later outputs do not need so much.
      nb::gil_scoped_release unlocked;
      if (device != nullptr)
        device->trim();
      else
        heap().trim();
    }
    const nb::object none = nb::none();
    const std::size_t alignment = device != nullptr ? kDeviceAlignment : kAlignment;
    return nb::cast(recording->complete() ? recorded(recording->trace(), alignment, recording->marks)
                                          : Recorded{false, 0, alignment, none, none, none});
  }
  auto* replaying = dynamic_cast<ReplayingRun*>(item.run.get());
  if (replaying == nullptr) return nb::none();
  const Replayed result = replaying->finish();
  item.pool->release(*item.region, settled || device == nullptr);
  if (device != nullptr && result.deviation) {
    nb::gil_scoped_release unlocked;
    device->trim();  // what a run took that was not in its plan, the next one will not
  }
  return nb::cast(result);
}

// What became of a run: what `begin` said, the run's outputs or the exception that ended it, and what `end_run` said.
// All in one call: a handler of signals may raise an exception between any two steps of Python's own code, and a run
// that is never ended would keep its region for ever. `settles`: a device has done all of a run that ended well.
nb::tuple within(const nb::callable& begin_it, const nb::tuple& how, std::int64_t token, const nb::callable& enter,
                 const nb::callable& leave, const nb::callable& run, const nb::tuple& arguments, bool settles) {
  nb::object begun = begin_it(*how), outputs = nb::none(), failure = nb::none();
  const auto attempt = [&failure](const auto& step) {
    try {
      step();
      return true;
    } catch (nb::python_error& error) {
      if (error.traceback().is_valid()) PyException_SetTraceback(error.value().ptr(), error.traceback().ptr());
      if (failure.is_none()) failure = nb::borrow(error.value());
      return false;
    }
  };
  attempt([&] {
    if (token != 0) mark_as(token);
    enter();
    outputs = run(*arguments);
  });
  // Twice, if a handler ended it the first time: leaving again does no harm.
  if (!attempt([&] { leave(); })) attempt([&] { leave(); });
  nb::object ended = end_run(settles && failure.is_none());
  return nb::make_tuple(begun, outputs, failure, ended);
}

HeapStats heap_stats() {
  const auto handed = static_cast<std::int64_t>(outputs().live_bytes());
  const auto blocks = static_cast<std::int64_t>(outputs().live_blocks());
  return {heap().live_bytes() + handed, heap().live_blocks() + blocks, unknown_frees()};
}

// What outputs and small blocks left behind when they were freed goes back to the system.
void trim_heap() {
  nb::gil_scoped_release unlocked;
  heap().trim();
  outputs().trim();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void make_tape_and_pool(nb::module_& module) {
  nb::class_<Tape>(module, "Tape")
      .def(
          "__init__",
          [](Tape* self, const Column& sizes, const Column& lowers, const Column& uppers, const Column& offsets,
             std::size_t guard, bool cut, const std::optional<Column>& over, std::size_t alignment) {
            new (self) Tape({values(sizes), values(lowers), values(uppers)}, values(offsets), guard, cut,
                            over ? values(*over) : std::vector<std::int64_t>{}, alignment);
          },
          nb::arg("sizes"), nb::arg("lowers"), nb::arg("uppers"), nb::arg("offsets"), nb::arg("guard") = 0,
          nb::arg("cut") = false, nb::arg("over") = nb::none(), nb::arg("alignment") = kAlignment)
      .def_prop_ro("peak", &Tape::peak)
      .def_prop_ro("cut", &Tape::cut)
      .def_prop_ro("steps", [](const Tape& tape) { return tape.events().size(); })
      .def_prop_ro("offsets", [](const Tape& tape) { return array(tape.offsets()); })
      .def_prop_ro("over", [](const Tape& tape) { return array(tape.over()); })
      .def_prop_ro("trace", [](const Tape& tape) { return recorded(tape.trace(), tape.alignment()); });

  nb::class_<PoolStats>(module, "PoolStats")
      .def_ro("regions", &PoolStats::regions)
      .def_ro("bytes", &PoolStats::bytes)
      .def_ro("largest", &PoolStats::largest)
      .def_ro("lent", &PoolStats::lent)
      .def_ro("escaped", &PoolStats::escaped)
      .def_ro("waits", &PoolStats::waits)
      .def_ro("refusals", &PoolStats::refusals);
  nb::class_<Pool>(module, "Pool")
      .def(nb::init<std::size_t, bool, bool, Device*>(), nb::arg("limit"), nb::arg("waits"), nb::arg("huge"),
           nb::arg("device") = nb::none())
      .def("trim", &Pool::trim, nb::call_guard<nb::gil_scoped_release>())
      .def("shrink", &Pool::shrink, nb::arg("size"), nb::call_guard<nb::gil_scoped_release>())
      .def("stats", &Pool::stats);
  nb::class_<HeapStats>(module, "HeapStats")
      .def_ro("live_bytes", &HeapStats::live_bytes)
      .def_ro("live_blocks", &HeapStats::live_blocks)
      .def_ro("unknown_frees", &HeapStats::unknown_frees);
}

void make_device(nb::module_& module) {
  nb::class_<DeviceStats>(module, "DeviceStats")
      .def_ro("heap_bytes", &DeviceStats::heap_bytes)
      .def_ro("live_bytes", &DeviceStats::live_bytes)
      .def_ro("live_blocks", &DeviceStats::live_blocks)
      .def_ro("synchronizations", &DeviceStats::synchronizations);
  nb::class_<Device>(module, "Device")
      .def_prop_ro("number", &Device::number)
      .def_prop_ro("maps", &Device::maps)
      .def("stats", &Device::stats)
      .def("memory",
           [](Device& device) {
             const Device::Memory memory = device.memory();
             return std::make_pair(memory.free, memory.total);
           })
      .def("trim", &Device::trim, nb::call_guard<nb::gil_scoped_release>())
      .def("settle", &Device::settle, nb::call_guard<nb::gil_scoped_release>())
      .def("synchronize", &Device::synchronize, nb::call_guard<nb::gil_scoped_release>())
      .def("allocate",
           [](Device& device, std::size_t size) { return reinterpret_cast<std::uintptr_t>(allocate_on(device, size)); })
      .def("release",
           [](Device& device, std::uintptr_t address) { release_on(device, reinterpret_cast<void*>(address)); });
}

Device* device_by_number(int number, const std::string& driver) {
  std::string problem;
  Device* device = open_device(number, driver, problem);
  if (device == nullptr) throw std::runtime_error(problem);
  return device;
}

void make_results(nb::module_& module) {
  nb::class_<Recorded>(module, "Recorded")
      .def_ro("complete", &Recorded::complete)
      .def_ro("alignment", &Recorded::alignment)
      .def_ro("marks", &Recorded::marks)
      .def_ro("sizes", &Recorded::sizes)
      .def_ro("lowers", &Recorded::lowers)
      .def_ro("uppers", &Recorded::uppers);
  nb::enum_<DeviationKind>(module, "DeviationKind")
      .value("PLACE_TAKEN", DeviationKind::place_taken)
      .value("ALLOCATION_AFTER_THE_LAST", DeviationKind::allocation_after_the_last)
      .value("ALLOCATION_INSTEAD_OF_FREE", DeviationKind::allocation_instead_of_free)
      .value("ALLOCATION_OF_ANOTHER_SIZE", DeviationKind::allocation_of_another_size)
      .value("FREE_INSTEAD_OF_ALLOCATION", DeviationKind::free_instead_of_allocation)
      .value("FREE_OF_ANOTHER_BUFFER", DeviationKind::free_of_another_buffer)
      .value("BUFFER_OUTLIVED_THE_RUN", DeviationKind::buffer_outlived_the_run)
      .value("ENDED_EARLY", DeviationKind::ended_early);
  nb::class_<Deviation>(module, "Deviation")
      .def_ro("kind", &Deviation::kind)
      .def_ro("step", &Deviation::step)
      .def_ro("expected_bytes", &Deviation::expected_bytes)
      .def_ro("asked_bytes", &Deviation::asked_bytes);
  nb::class_<Replayed>(module, "Replayed")
      .def_ro("deviation", &Replayed::deviation)
      .def_ro("overruns", &Replayed::overruns)
      .def_ro("marks", &Replayed::marks);
}

// All that the garbage collector knows, but for tuples. A tuple that another thread is just filling must not be
// referred to: Python would refuse to give it its final length, and that thread would fail. So nothing here may run
// Python's own code, which lets other threads in: no object is asked anything, and nothing is made that could set off
// the collector.
nb::list tracked_objects() {
  nb::list kept;
  const nb::object every = nb::module_::import_("gc").attr("get_objects")();
  const auto count = static_cast<Py_ssize_t>(nb::len(every));
  for (Py_ssize_t k = 0; k < count; ++k) {
    PyObject* thing = PyList_GetItem(every.ptr(), k);
    if (thing == nullptr) throw nb::python_error();
    const bool passed_over = PyTuple_Check(thing) || thing == kept.ptr();
    if (!passed_over && PyList_Append(kept.ptr(), thing) != 0) throw nb::python_error();
  }
  return kept;
}

// Classes can be made only once in a process, and a module may well be imported a second time.
template <typename... Types>
bool reuse(nb::module_& module, std::initializer_list<const char*> names) {
  if (!(nb::type<Types>().is_valid() && ...)) return false;
  const char* const* name = names.begin();
  ((module.attr(*name++) = nb::type<Types>()), ...);
  return true;
}

}  // namespace

NB_MODULE(arena, module) {
  // Sessions may well be alive when the interpreter ends; that is not worth a message.
  nb::set_leak_warnings(false);

  if (!reuse<Tape, Pool, PoolStats, HeapStats, Recorded, DeviationKind, Deviation, Replayed, DeviceStats, Device>(
          module, {"Tape", "Pool", "PoolStats", "HeapStats", "Recorded", "DeviationKind", "Deviation", "Replayed",
                   "DeviceStats", "Device"})) {
    make_device(module);
    make_tape_and_pool(module);
    make_results(module);
  }

  module.def(
      "place_in_sequence",
      [](const Column& sizes, const Column& lowers, const Column& uppers, std::size_t alignment) {
        return array(place_in_sequence({values(sizes), values(lowers), values(uppers)}, alignment));
      },
      nb::arg("sizes"), nb::arg("lowers"), nb::arg("uppers"), nb::arg("alignment") = kAlignment);
  module.attr("HANDED_FROM") = kHandedFrom;
  module.def("connected", &connected);
  module.def("enlist", &enlist);
  module.def("withdraw", &withdraw);
  module.def("open_device", &device_by_number, nb::arg("number"), nb::arg("driver"), nb::rv_policy::reference);
  module.def("enlist_device", &enlist_device, nb::arg("device"));
  module.def("withdraw_device", &withdraw_device, nb::arg("device"));
  module.def("begin_heap", &begin_heap, nb::arg("device") = nb::none());
  module.def("begin_record", &begin_record, nb::arg("limited") = true, nb::arg("device") = nb::none());
  module.def("begin_record_inside", &begin_record_inside, nb::arg("pool"), nb::arg("size"), nb::arg("outlasting"));
  module.def("begin_replay", &begin_replay, nb::arg("tape"), nb::arg("pool"));
  module.def("mark_as", &mark_as, nb::arg("token"));
  module.def("end_run", &end_run, nb::arg("settled") = true);
  module.def("within", &within);
  module.def("tracked_objects", &tracked_objects);
  module.def("heap_stats", &heap_stats);
  module.def("trim_heap", &trim_heap);

  // The allocator's entry points by address, so that tests can play the part of ONNX Runtime.
  module.def("allocate", [](std::size_t size) { return reinterpret_cast<std::uintptr_t>(allocate(size)); });
  module.def("release", [](std::uintptr_t address) { release(reinterpret_cast<void*>(address)); });
}
