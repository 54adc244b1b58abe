#include "arena_outputs.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "arena_heap.hpp"
#include "arena_tape.hpp"

namespace onnxmem::arena {

namespace {

// Each is a mapping of its own for every piece it has, and the system allows a process some 65,000: who keeps outputs
// by the thousand gets the others from the heap, whose mappings are one where they touch.
constexpr std::size_t kMostHanded = 2048;

}  // namespace

void* Outputs::take(Region& region, const std::vector<Pages>& pages, std::size_t size) noexcept {
  const std::size_t bytes = whole_pages(size);
  if (bytes == 0 || pages.empty() || !pages_move() || live_blocks() >= kMostHanded) return nullptr;
  const Pages first = region.movable(pages.front());
  std::byte* block = first.bytes == 0 ? nullptr : shell_of(bytes);
  if (block == nullptr && first.bytes != 0) block = map_like(region.base() + first.start, bytes);
  if (block == nullptr) return nullptr;
  try {
    Handed handed{bytes, {}};
    handed.pieces.reserve(pages.size());
    region.holes.reserve(region.holes.size() + pages.size());
    std::size_t at = 0;
    for (const Pages& each : pages) {
      const Pages part = region.movable(each);
      if (part.bytes == 0) continue;
      std::byte* home = region.base() + part.start;
      const Move result = move_pages(home, block + at, part.bytes);
      if (result == Move::lost) {
        munmap(block, at);
        munmap(block + at + part.bytes, bytes - at - part.bytes);
        return nullptr;
      }
      if (result == Move::refused) break;  // the rest is as good without
      handed.pieces.push_back({block + at, home, part.bytes});
      region.holes.push_back(part);
      at += part.bytes;
    }
    const std::scoped_lock guard(lock);
    handed_.emplace(block, std::move(handed));
    bytes_ += bytes;
    most_bytes_ = std::max(most_bytes_, bytes_);
    unmap_shells_above(most_bytes_ - bytes_);
    return block;
  } catch (...) {
    munmap(block, bytes);
    return nullptr;
  }
}

void* Outputs::take_free(Region& region, std::size_t size) noexcept {
  try {
    return take(region, free_pages(region, size), size);
  } catch (...) {
    return nullptr;
  }
}

bool Outputs::release(void* block) {
  Handed handed;
  {
    const std::scoped_lock guard(lock);
    const auto found = handed_.find(block);
    if (found == handed_.end()) return false;
    handed = std::move(found->second);
    handed_.erase(found);
    bytes_ -= handed.bytes;
  }
  // Only now, when no table knows it any more, may the same address be handed to someone else.
  const std::size_t runs = take_home(handed.pieces);
  const std::scoped_lock guard(lock);
  if (runs == 0)
    leave(block, handed);
  else
    spares_.push_back({block, std::move(handed)});
  keep_only(runs);
  return true;
}

void Outputs::leave(void* block, const Handed& handed) noexcept {
  std::size_t moved = 0;
  for (const MovedPages& each : handed.pieces) moved += each.bytes;
  const std::size_t own = handed.bytes - moved;
  // Those that did not go home, because something came there since, are of no more use.
  if (own >= kHandedFrom && (moved == 0 || madvise(block, moved, MADV_DONTNEED) == 0)) {
    try {
      shells_.push_back({static_cast<std::byte*>(block), handed.bytes, own});
      shell_bytes_ += own;
      return;
    } catch (...) {}
  }
  munmap(block, handed.bytes);
}

std::byte* Outputs::shell_of(std::size_t bytes) noexcept {
  const std::scoped_lock guard(lock);
  const auto found =
      std::find_if(shells_.rbegin(), shells_.rend(), [bytes](const Shell& each) { return each.bytes == bytes; });
  if (found == shells_.rend()) return nullptr;
  std::byte* block = found->block;
  shell_bytes_ -= found->own_bytes;
  shells_.erase(std::next(found).base());
  return block;
}

void Outputs::unmap_shells_above(std::size_t bytes) noexcept {
  for (; shell_bytes_ > bytes; shells_.erase(shells_.begin())) {
    munmap(shells_.front().block, shells_.front().bytes);
    shell_bytes_ -= shells_.front().own_bytes;
  }
}

void* Outputs::reuse(std::size_t size) noexcept {
  const std::size_t bytes = whole_pages(size);
  const std::scoped_lock guard(lock);
  const auto found =
      std::find_if(spares_.begin(), spares_.end(), [bytes](const Spare& each) { return each.handed.bytes == bytes; });
  if (found == spares_.end()) return nullptr;
  void* block = found->block;
  try {
    handed_.emplace(block, std::move(found->handed));
  } catch (...) {
    return nullptr;
  }
  bytes_ += bytes;
  most_bytes_ = std::max(most_bytes_, bytes_);
  unmap_shells_above(most_bytes_ - bytes_);
  spares_.erase(found);
  return block;
}

void Outputs::trim() noexcept {
  const std::scoped_lock guard(lock);
  keep_only(0);
  unmap_shells_above(0);
  most_bytes_ = bytes_;
}

void Outputs::keep_only(std::size_t newest) noexcept {
  for (; spares_.size() > newest; spares_.erase(spares_.begin())) {
    munmap(spares_.front().block, spares_.front().handed.bytes);
  }
}

std::size_t Outputs::live_bytes() {
  const std::scoped_lock guard(lock);
  return bytes_;
}

std::size_t Outputs::live_blocks() {
  const std::scoped_lock guard(lock);
  return handed_.size();
}

Outputs& outputs() {
  static Outputs& process_wide = *new Outputs;
  return process_wide;
}

}  // namespace onnxmem::arena
