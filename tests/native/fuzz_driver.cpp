// Runs a target without libFuzzer: over the inputs of a file, a line of hexadecimal digits each, then over random ones.
// An input that fails is printed as such a line.
#include <csignal>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "fuzz_source.hpp"

namespace {

std::vector<std::uint8_t> current;

void show(int) {
  std::fputs("input: ", stderr);
  for (const std::uint8_t each : current) std::fprintf(stderr, "%02x", each);
  std::fputs("\n", stderr);
  std::_Exit(1);
}

void run() { LLVMFuzzerTestOneInput(current.data(), current.size()); }

}  // namespace

int run_inputs(const char* path, long inputs, unsigned long seed) {
  std::signal(SIGABRT, show);
  long kept = 0;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line); ++kept) {
    current.clear();
    for (std::size_t at = 0; at + 1 < line.size(); at += 2)
      current.push_back(static_cast<std::uint8_t>(std::stoi(line.substr(at, 2), nullptr, 16)));
    run();
  }
  std::mt19937_64 random(seed);
  for (long input = 0; input < inputs; ++input) {
    // Short ones as often as long ones: most mistakes need little to be seen.
    current.resize(random() % (std::size_t{8} << random() % 7));
    for (std::uint8_t& each : current) each = static_cast<std::uint8_t>(random());
    run();
  }
  std::printf("%ld kept inputs, %ld random ones\n", kept, inputs);
  return 0;
}
