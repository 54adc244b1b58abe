//   FILE INPUTS SEED
#include <cstdlib>

#include "fuzz_source.hpp"

int main(int count, char** words) {
  return count == 4 ? run_inputs(words[1], std::atol(words[2]), std::strtoul(words[3], nullptr, 10)) : 2;
}
