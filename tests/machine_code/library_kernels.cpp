// library_kernels CODE_OBJECT PATTERN N: what those of rocBLAS's own kernels whose names match take for a
// matmul of N x N x N, as lines of a report (hip_runtime.cpp). A block of each stands for all. The rates of
// such kernels are published, and so a model that makes cycles of counters can be checked.
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "machine.h"

namespace {

using namespace machine_code;

/// Operands and result, all zero, as large as they must be and no larger.
std::byte* matrix(uint64_t n) {
  constexpr size_t kPage = 4096;
  const size_t bytes = n * n * 2;
  void* made = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  std::fill_n(static_cast<std::byte*>(made), bytes, std::byte{0});
  allow(reinterpret_cast<uint64_t>(made), bytes);
  return static_cast<std::byte*>(made);
}

/// The number behind a word of a kernel's name: Tensile puts its parameters there.
uint32_t number_after(const std::string& name, const std::string& word) {
  std::smatch found;
  return std::regex_search(name, found, std::regex("_" + word + "([0-9]+)(_|$)"))
             ? static_cast<uint32_t>(std::stoul(found[1]))
             : 0;
}

/// The arguments by name (Tensile's KernelWriter), of alpha 1 and beta 0.
std::map<std::string, uint64_t> arguments_of(const std::string& name, uint64_t n, Size blocks,
                                             const std::map<std::string, std::byte*>& memory) {
  const uint32_t across = std::max(1u, number_after(name, "WGM"));
  const uint32_t full = across > 1 ? blocks.y / across : 0;
  const uint32_t rest = across > 1 && blocks.y % across != 0 ? blocks.y % across : across;
  std::map<std::string, uint64_t> values = {{"alpha", std::bit_cast<uint32_t>(1.0F)},
                                            {"SizesFree0", n},
                                            {"SizesFree1", n},
                                            {"SizesFree2", 1},
                                            {"SizesSum0", n},
                                            {"NumWorkGroups0", blocks.x},
                                            {"NumWorkGroups1", blocks.y},
                                            {"NumFullBlocks", full},
                                            {"WgmRemainder1", rest},
                                            {"MagicNumberWgmRemainder1", (uint64_t{1} << 31) / rest + 1}};
  for (const char* tensor : {"A", "B", "C", "D"}) {
    values[std::string("stride") + tensor + "0"] = n;
    values[std::string("stride") + tensor + "1"] = values[std::string("size") + tensor] = n * n;
    values[tensor] = reinterpret_cast<uint64_t>(memory.at(tensor));
  }
  return values;
}

void run(Kernel kernel, uint64_t n, const std::map<std::string, std::byte*>& memory) {
  std::smatch tile;
  if (!std::regex_search(kernel.name, tile, std::regex("_MT([0-9]+)x([0-9]+)x"))) return;
  const auto rows = static_cast<uint32_t>(std::stoul(tile[1])),
             columns = static_cast<uint32_t>(std::stoul(tile[2]));
  const Size blocks{static_cast<uint32_t>((n + rows - 1) / rows),
                    static_cast<uint32_t>((n + columns - 1) / columns), 1};
  auto values = arguments_of(kernel.name, n, blocks, memory);
  std::vector<void*> arguments;
  for (const Argument& argument : kernel.arguments) arguments.push_back(&values[argument.name]);
  // They flush denormal numbers, which Hearth's must not.
  kernel.rsrc1 |= 15u << 16;
  try {
    launch(kernel, blocks, {kernel.most_threads, 1, 1}, arguments.data(), 0);
  } catch (const Fault& fault) {
    std::fprintf(stderr, "%s\n", fault.what.c_str());
    return;
  }
  std::printf("kernel 0 %s\n", kernel.name.c_str());
  print(counts().counters.at(kernel.name), stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  std::ifstream file(argv[1], std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const std::regex pattern(argv[2]);
  const auto n = static_cast<uint64_t>(std::atoll(argv[3]));
  settings().counts = true;
  settings().most_blocks = 1;
  std::map<std::string, std::byte*> memory;
  for (const char* name : {"A", "B", "C", "D"}) memory[name] = matrix(n);
  try {
    const CodeObject object(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
    for (const auto& [name, kernel] : object.kernels()) {
      if (std::regex_search(name, pattern)) run(kernel, n, memory);
    }
  } catch (const Fault& fault) {
    std::fprintf(stderr, "%s\n", fault.what.c_str());
    return 1;
  }
  return 0;
}
