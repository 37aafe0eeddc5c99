// library_kernels CODE_OBJECT PATTERN matmul N ELEMENT_BYTES
// library_kernels CODE_OBJECT PATTERN launch GRID_X,GRID_Y,GRID_Z THREADS_X,THREADS_Y LDS_BYTES BLOCKS
// ARGUMENT... Executes the kernels of other projects whose names match, and prints their counters in the
// format of hip_runtime.cpp. `matmul` runs one block of Tensile kernels of rocBLAS for a matmul N x N x N.
// `launch` runs BLOCKS blocks of any kernel; an argument is memory:BYTES, i32:VALUE or f32:VALUE.
// bench/calibrate.py fits bench/gpu_model.py to the published rates of these kernels.
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

/// Allocates exactly `bytes` of zeroed memory that kernels may access.
std::byte* allocate(uint64_t bytes) {
  constexpr size_t kPage = 4096;
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

void count(Kernel kernel, Size blocks, Size threads, void** arguments, size_t lds_bytes) {
  // Keeps denormal numbers, as Hearth's kernels do; some kernels flush them.
  kernel.rsrc1 |= 15u << 16;
  try {
    launch(kernel, blocks, threads, arguments, lds_bytes);
  } catch (const Fault& fault) {
    std::fprintf(stderr, "%s\n", fault.what.c_str());
    return;
  }
  std::printf("kernel 0 %s\n", kernel.name.c_str());
  print(counts().counters.at(kernel.name), stdout);
}

void count_matmul(const Kernel& kernel, uint64_t n, const std::map<std::string, std::byte*>& memory) {
  std::smatch tile;
  if (!std::regex_search(kernel.name, tile, std::regex("_MT([0-9]+)x([0-9]+)x"))) return;
  const auto rows = static_cast<uint32_t>(std::stoul(tile[1])),
             columns = static_cast<uint32_t>(std::stoul(tile[2]));
  const Size blocks{static_cast<uint32_t>((n + rows - 1) / rows),
                    static_cast<uint32_t>((n + columns - 1) / columns), 1};
  auto values = arguments_of(kernel.name, n, blocks, memory);
  std::vector<void*> arguments;
  for (const Argument& argument : kernel.arguments) arguments.push_back(&values[argument.name]);
  count(kernel, blocks, {kernel.max_threads, 1, 1}, arguments.data(), 0);
}

/// Parses "X,Y,Z"; axes that are left out are 1.
Size size_of(const std::string& text) {
  Size size;
  std::sscanf(text.c_str(), "%u,%u,%u", &size.x, &size.y, &size.z);
  return size;
}

/// Parses an argument of `launch`. A kernel reads the first of the eight bytes, as many as its argument has.
uint64_t argument_of(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon), value = text.substr(colon + 1);
  if (kind == "memory") return reinterpret_cast<uint64_t>(allocate(std::stoull(value)));
  if (kind == "f32") return std::bit_cast<uint32_t>(std::stof(value));
  return static_cast<uint32_t>(std::stol(value));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool matmul = words.size() == 5 && words[2] == "matmul";
  if (!matmul && (words.size() < 7 || words[2] != "launch")) return 2;
  std::ifstream file(words[0], std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const std::regex pattern(words[1]);
  settings().counts = true;
  settings().max_blocks = matmul ? 1 : std::stoull(words[6]);
  try {
    const CodeObject object(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
    std::map<std::string, std::byte*> memory;
    std::vector<uint64_t> values;
    std::vector<void*> arguments;
    const uint64_t n = matmul ? std::stoull(words[3]) : 0;
    for (const char* name : {"A", "B", "C", "D"}) {
      if (matmul) memory[name] = allocate(n * n * std::stoull(words[4]));
    }
    for (size_t i = 7; i < words.size(); ++i) values.push_back(argument_of(words[i]));
    for (uint64_t& value : values) arguments.push_back(&value);
    for (const auto& [name, kernel] : object.kernels()) {
      if (!std::regex_search(name, pattern)) continue;
      if (matmul) {
        count_matmul(kernel, n, memory);
      } else {
        count(kernel, size_of(words[3]), size_of(words[4]), arguments.data(), std::stoull(words[5]));
      }
    }
  } catch (const Fault& fault) {
    std::fprintf(stderr, "%s\n", fault.what.c_str());
    return 1;
  }
  return 0;
}
