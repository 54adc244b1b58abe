// The Python module `onnxmem._native.placement`: flat arrays in, offsets out, the interpreter lock released between.
#include <Python.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>

#include "placement_at_once.hpp"
#include "placement_greedy.hpp"
#include "placement_instance.hpp"
#include "placement_race.hpp"

namespace nb = nanobind;

namespace onnxmem::placement {
namespace {

using Column = nb::ndarray<const Int, nb::numpy, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Offsets = nb::ndarray<Int, nb::numpy, nb::shape<-1>, nb::c_contig>;

Columns columns_of(const Column& lowers, const Column& uppers, const Column& sizes) {
  const std::size_t count = sizes.shape(0);
  if (lowers.shape(0) != count || uppers.shape(0) != count) throw std::invalid_argument("columns of different length");
  if (count > static_cast<std::size_t>(std::numeric_limits<Index>::max()))
    throw std::invalid_argument("more than 2^31 buffers");
  for (std::size_t i = 0; i < count; ++i)
    if (sizes(i) < 0 || lowers(i) >= uppers(i)) throw std::invalid_argument("a negative size or an empty lifetime");
  return {lowers.data(), uppers.data(), sizes.data(), count};
}

// Rows of (buffer, step, size): see Shrink.
using Shrinks = nb::ndarray<const Int, nb::numpy, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;

std::vector<Shrink> shrinks_of(const std::optional<Shrinks>& rows) {
  std::vector<Shrink> shrinks;
  for (std::size_t k = 0; rows && k < rows->shape(0); ++k) {
    const Int row = (*rows)(k, 0);
    if (row < 0 || row > std::numeric_limits<Index>::max())
      throw std::invalid_argument("a buffer that is not there shrinks");
    shrinks.push_back({static_cast<Index>(row), (*rows)(k, 1), (*rows)(k, 2)});
  }
  return shrinks;
}

Offsets array_of(const std::vector<Int>& values) {
  auto owned = std::make_unique<Int[]>(values.size());
  std::copy(values.begin(), values.end(), owned.get());
  Int* data = owned.get();
  nb::capsule owner(owned.release(), [](void* p) noexcept { delete[] static_cast<Int*>(p); });
  return Offsets(data, {values.size()}, owner);
}

// Has someone pressed Ctrl-C? Then the search ends and its best result so far is returned, so the pending
// KeyboardInterrupt is taken back here; any other exception of a signal handler goes its way.
bool interrupted() {
  const nb::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() == 0) return false;
  if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) throw nb::python_error();
  PyErr_Clear();
  return true;
}

// Asks at most every few milliseconds: taking the interpreter lock back is not free.
class Polled {
 public:
  bool operator()() {
    const auto now = Watch::Clock::now();
    if (now < next_) return false;
    next_ = now + std::chrono::milliseconds(5);
    return interrupted();
  }

 private:
  Watch::Clock::time_point next_ = Watch::Clock::now();
};

nb::tuple place_in_order_bound(const Column& lowers, const Column& uppers, const Column& sizes, const Column& order,
                               bool best_fit, double seconds) {
  const Columns columns = columns_of(lowers, uppers, sizes);
  if (order.shape(0) != columns.count) throw std::invalid_argument("columns of different length");
  Watch watch(seconds, Polled());
  std::optional<std::vector<Int>> offsets;
  {
    const nb::gil_scoped_release unlocked;
    offsets = place_in_order(columns, order.data(), best_fit, watch);
  }
  return nb::make_tuple(offsets ? nb::cast(array_of(*offsets)) : nb::none(), watch.interrupted());
}

nb::tuple place_at_once_bound(const Column& lowers, const Column& uppers, const Column& sizes) {
  const Columns columns = columns_of(lowers, uppers, sizes);
  AtOnce found;
  {
    const nb::gil_scoped_release unlocked;
    found = place_at_once(columns);
  }
  return nb::make_tuple(nb::cast(array_of(found.offsets)), found.peak, found.bound);
}

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFits: return "fits";
    case Verdict::kImpossible: return "impossible";
    case Verdict::kUnknown: break;
  }
  return "unknown";
}

nb::tuple search(const Column& lowers, const Column& uppers, const Column& sizes, Int capacity, double seconds,
                 std::uint64_t seed, unsigned lanes, std::size_t memory, std::uint64_t work,
                 const std::optional<Shrinks>& shrink) {
  const Columns columns = columns_of(lowers, uppers, sizes);
  const std::vector<Shrink> shrinks = shrinks_of(shrink);
  if (capacity < 0) throw std::invalid_argument("a negative capacity");
  Watch watch(seconds, Polled());
  Searched found;
  {
    const nb::gil_scoped_release unlocked;
    const Instance instance = reduce(columns, shrinks);
    found = search_parts(columns.count, instance, work, watch, [&](const Part& part, std::uint64_t share) {
      return race(part, capacity / instance.unit, lanes, seed, memory, watch, share);
    });
  }
  const bool fits = found.verdict == Verdict::kFits;
  return nb::make_tuple(name_of(found.verdict), fits ? nb::cast(array_of(found.offsets)) : nb::none(),
                        watch.interrupted());
}

std::size_t largest_part(const Column& lowers, const Column& uppers, const Column& sizes) {
  const Columns columns = columns_of(lowers, uppers, sizes);
  const nb::gil_scoped_release unlocked;
  std::size_t largest = 0;
  for (const Part& part : reduce(columns).parts) largest = std::max(largest, part.count());
  return largest;
}

nb::dict summary(const Column& lowers, const Column& uppers, const Column& sizes) {
  const Columns columns = columns_of(lowers, uppers, sizes);
  Instance instance;
  {
    const nb::gil_scoped_release unlocked;
    instance = reduce(columns);
  }
  nb::list parts;
  for (const Part& part : instance.parts) {
    nb::list ranges;
    for (std::size_t b = 0; b < part.count(); ++b)
      ranges.append(nb::make_tuple(part.rows[b], part.first[b], part.last[b], part.size[b]));
    parts.append(ranges);
  }
  nb::dict result;
  result["unit"] = instance.unit;
  result["parts"] = parts;
  return result;
}

}  // namespace
}  // namespace onnxmem::placement

NB_MODULE(placement, module) {
  namespace pl = onnxmem::placement;
  module.def("place_in_order", &pl::place_in_order_bound, nb::arg("lowers"), nb::arg("uppers"), nb::arg("sizes"),
             nb::arg("order"), nb::arg("best_fit"), nb::arg("seconds"));
  module.def("place_at_once", &pl::place_at_once_bound, nb::arg("lowers"), nb::arg("uppers"), nb::arg("sizes"));
  module.def("search", &pl::search, nb::arg("lowers"), nb::arg("uppers"), nb::arg("sizes"), nb::arg("capacity"),
             nb::arg("seconds"), nb::arg("seed"), nb::arg("lanes"), nb::arg("memory") = pl::kMemory,
             nb::arg("work") = pl::kEndless, nb::arg("shrink") = nb::none());
  module.def("largest_part", &pl::largest_part, nb::arg("lowers"), nb::arg("uppers"), nb::arg("sizes"));
  module.def("reduce", &pl::summary, nb::arg("lowers"), nb::arg("uppers"), nb::arg("sizes"));
  module.attr("MOST_FOR_SEARCH") = pl::kMostForSearch;
  module.attr("MOST_IN_TABLES") = pl::kMostInTables;
  module.attr("MEMORY") = pl::kMemory;
}
