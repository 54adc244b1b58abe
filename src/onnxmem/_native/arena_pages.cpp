#include "arena_pages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "arena_heap.hpp"

// Known to the system before they were to the C library.
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace onnxmem::arena {

namespace {

constexpr int kAccess = PROT_READ | PROT_WRITE, kKind = MAP_PRIVATE | MAP_ANONYMOUS;

std::byte* map_pages(std::size_t bytes) {
  void* fresh = mmap(nullptr, bytes, kAccess, kKind, -1, 0);
  return fresh == MAP_FAILED ? nullptr : static_cast<std::byte*>(fresh);
}

bool remap(std::byte* from, std::byte* to, std::size_t bytes) {
  return mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) != MAP_FAILED;
}

bool try_out() {
  const std::size_t page = whole_pages(1);
  std::byte* two = map_pages(2 * page);
  if (two == nullptr) return false;
  *two = std::byte{1};
  const bool moved = remap(two, two + page, page) && two[page] == std::byte{1} && *two == std::byte{0};
  munmap(two, 2 * page);
  return moved;
}

}  // namespace

void UsedPages::add(std::size_t start, std::size_t end) {
  const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), start,
                                      [](const Pages& each, std::size_t at) { return each.end() < at; });
  auto last = first;
  for (; last != ranges_.end() && last->start <= end; ++last) {
    start = std::min(start, last->start);
    end = std::max(end, last->end());
  }
  if (first == last) {
    ranges_.insert(first, {start, end - start});
  } else {
    *first = {start, end - start};
    ranges_.erase(std::next(first), last);
  }
}

std::vector<Pages> UsedPages::gaps(std::size_t limit) const {
  std::vector<Pages> found;
  std::size_t free_from = 0;
  for (const Pages& each : ranges_) {
    if (each.start > free_from) found.push_back({free_from, each.start - free_from});
    free_from = each.end();
  }
  if (free_from < limit) found.push_back({free_from, limit - free_from});
  return found;
}

bool pages_move() noexcept {
  static const bool answer = try_out();
  return answer;
}

std::byte* map_like(const std::byte* other, std::size_t bytes) noexcept {
  if (bytes < kTable) return map_pages(bytes);
  std::byte* room = map_pages(bytes + kTable);
  if (room == nullptr) return nullptr;
  const std::size_t before =
      (reinterpret_cast<std::uintptr_t>(other) - reinterpret_cast<std::uintptr_t>(room)) % kTable;
  if (before != 0) munmap(room, before);
  munmap(room + before + bytes, kTable - before);
  return room + before;
}

Move move_pages(std::byte* from, std::byte* to, std::size_t bytes) noexcept {
  if (remap(from, to, bytes)) return Move::moved;
  // The system may have unmapped `to` before it found that it cannot. Another thread may have been given that address
  // since, so it is not taken back by force.
  void* again = mmap(to, bytes, kAccess, kKind | MAP_FIXED_NOREPLACE, -1, 0);
  if (again == to) return Move::refused;
  if (again != MAP_FAILED) munmap(again, bytes);
  return Move::lost;
}

}  // namespace onnxmem::arena
