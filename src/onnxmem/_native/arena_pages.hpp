// Pages of memory, and moving them from one address to another without copying a byte.
#pragma once

#include <cstddef>
#include <vector>

namespace onnxmem::arena {

// Whole pages, counted in bytes from the beginning of a region.
struct Pages {
  std::size_t start, bytes;
  std::size_t end() const { return start + bytes; }
};

// Where a page was moved to, and where it came from.
struct MovedPages {
  std::byte *at, *home;
  std::size_t bytes;
};

// Pages that are in use, as ranges that neither overlap nor touch.
class UsedPages {
 public:
  void add(std::size_t start, std::size_t end);
  std::vector<Pages> gaps(std::size_t limit) const;  // between them and behind the last, up to the limit

 private:
  std::vector<Pages> ranges_;  // by their beginning
};

// Huge pages, and whole tables of pages, move as one if both addresses agree in what is below this.
constexpr std::size_t kTable = std::size_t{2} << 20;

// Does the system move pages and leave the place they came from mapped? Linux does from 5.7 on.
bool pages_move() noexcept;

// Fresh, empty memory whose address agrees with another one's in what is below a table of pages; null if there is none.
std::byte* map_like(const std::byte* other, std::size_t bytes) noexcept;

// `to` gets the pages of `from` instead of its own, and `from` is empty afterwards; both stay mapped. On failure, `to`
// is empty and `from` as it was; were even that impossible, `lost`: then `to` is not ours any more.
enum class Move { moved, refused, lost };
Move move_pages(std::byte* from, std::byte* to, std::size_t bytes) noexcept;

}  // namespace onnxmem::arena
