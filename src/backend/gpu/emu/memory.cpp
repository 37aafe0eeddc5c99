#include <cstdlib>
#include <new>

#include "backend/gpu/emu/checker.h"

namespace hearth::emu {

constexpr size_t kAlignment = 256;

const Checker* checker = nullptr;

std::byte* allocate(int64_t num_bytes) {
  const auto size = static_cast<size_t>(num_bytes);
  if (checker != nullptr) {
    std::byte* memory = checker->reserve(size);
    checker->mark(memory, size, Checker::State::set);
    return memory;
  }
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, size) != 0) throw std::bad_alloc();
  return static_cast<std::byte*>(memory);
}

void release(std::byte* memory) {
  if (checker != nullptr) return checker->release(memory);
  std::free(memory);
}

}  // namespace hearth::emu
