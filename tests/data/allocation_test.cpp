#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "data/loader.h"

namespace {
std::atomic<int64_t> num_allocations{0};
}

void* operator new(size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace hearth::data {
namespace {

TEST(Allocation, NoneAfterTheLoaderIsBuilt) {
  const auto dataset = open_dataset({.image_size = 16, .count = 100});
  for (const int threads : {0, 2}) {
    Loader loader(*dataset,
                  {.batch = 8, .num_threads = threads, .augment = {.crop_padding = 2, .jitter = 0.2F}});
    loader.next();
    const int64_t before = num_allocations;
    EXPECT_GT(before, 0);
    for (int i = 0; i < 50; ++i) loader.next();
    EXPECT_EQ(num_allocations - before, 0) << threads << " threads";
  }
}

}  // namespace
}  // namespace hearth::data
