#include <algorithm>
#include <iterator>

#include "arena_device.hpp"

namespace onnxmem::arena {

namespace {

constexpr int kReadAndWrite = 3;

std::size_t up(std::size_t bytes, std::size_t unit) {
  return bytes > SIZE_MAX - (unit - 1) ? 0 : (bytes + unit - 1) / unit * unit;
}

}  // namespace

Span::~Span() {
  cut(0);
  if (base_ == 0 || !device_.maps()) return;
  const Current current(device_);
  device_.driver_.unreserve(base_, space_);
}

bool Span::open() noexcept {
  if (base_ != 0) return true;
  // Twice what there is: first fit among blocks that come and go may leave gaps without memory.
  const std::size_t space = up(2 * device_.total_, device_.granularity_);
  const Current current(device_);
  Driver::Address base = 0;
  if (device_.driver_.reserve(&base, space, 0, 0, 0) != 0) return false;
  base_ = base, space_ = space;
  return true;
}

bool Span::cover(std::size_t start, std::size_t end) noexcept {
  if (start >= end) return true;
  if (!device_.maps()) return start == 0 && one_block(end);
  if (!open() || end > space_) return false;
  const std::size_t unit = device_.granularity_;
  start = start / unit * unit, end = up(end, unit);
  try {
    std::vector<std::size_t> added;
    for (std::size_t at = start; at < end;) {
      auto next = pieces_.upper_bound(at);
      if (next != pieces_.begin()) {
        const auto before = std::prev(next);
        if (before->first + before->second > at) {
          at = before->first + before->second;
          continue;
        }
      }
      const std::size_t gap_end = std::min(end, next == pieces_.end() ? end : next->first);
      const std::size_t bytes = std::min(gap_end - at, kPiece);
      added.push_back(at);
      if (!add(at, bytes)) {
        added.pop_back();
        for (const std::size_t each : added) drop(pieces_.find(each));
        return false;
      }
      at += bytes;
    }
  } catch (...) {
    return false;
  }
  return true;
}

bool Span::covers(std::size_t start, std::size_t end) const {
  for (auto next = pieces_.upper_bound(start); start < end; ++next) {
    if (next == pieces_.begin()) return false;
    const auto before = std::prev(next);
    if (before->first > start || before->first + before->second <= start) return false;
    start = before->first + before->second;
    if (start < end && next == pieces_.end()) return false;
  }
  return true;
}

bool Span::one_block(std::size_t end) noexcept {
  if (end <= bytes_) return true;
  // What is in it is lost; those who still need that do not ask for more.
  cut(0);
  const Current current(device_);
  Driver::Address block = 0;
  if (device_.driver_.allocate(&block, end) != 0) return false;
  try {
    pieces_[0] = end;
  } catch (...) {
    device_.driver_.free(block);
    return false;
  }
  base_ = block, space_ = bytes_ = end;
  return true;
}

bool Span::add(std::size_t start, std::size_t bytes) noexcept {
  const Driver& driver = device_.driver_;
  const Current current(device_);
  const MemoryKind kind = kind_on(device_.number_);
  const MemoryAccess access{kind.location, kReadAndWrite};
  Driver::Handle memory = 0;
  if (driver.create(&memory, bytes, &kind, 0) != 0) return false;
  const bool mapped = driver.map(base_ + start, bytes, 0, memory, 0) == 0;
  driver.release(memory);  // it lives as long as it is mapped
  if (!mapped) return false;
  try {
    if (driver.allow(base_ + start, bytes, &access, 1) == 0) {
      pieces_[start] = bytes;
      bytes_ += bytes;
      return true;
    }
  } catch (...) {}
  driver.unmap(base_ + start, bytes);
  return false;
}

void Span::drop(std::map<std::size_t, std::size_t>::iterator piece) noexcept {
  const Current current(device_);
  if (device_.maps()) {
    device_.driver_.unmap(base_ + piece->first, piece->second);
  } else {
    device_.driver_.free(base_);
    base_ = 0, space_ = 0;
  }
  bytes_ -= piece->second;
  pieces_.erase(piece);
}

void Span::uncover(const std::vector<Interval>& used) noexcept {
  for (auto piece = pieces_.begin(); piece != pieces_.end();) {
    const auto here = piece++;
    const auto next = std::lower_bound(used.begin(), used.end(), here->first,
                                       [](const Interval& each, std::size_t start) { return each.end <= start; });
    if (next == used.end() || next->start >= here->first + here->second) drop(here);
  }
}

void Span::cut(std::size_t end) noexcept {
  const std::size_t most = device_.maps() ? up(end, device_.granularity_) : end;
  std::size_t across = 0;  // where the one begins that is cut in two
  bool again = false;
  while (!pieces_.empty() && this->end() > most) {
    const auto last = std::prev(pieces_.end());
    across = last->first;
    again = across < most;
    drop(last);
  }
  // A piece goes as a whole. That there is no memory for the rest of it just now, would be found out when it is needed.
  if (again) cover(across, most);
}

}  // namespace onnxmem::arena
