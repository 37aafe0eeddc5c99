#include "io/weight_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "temporary_folder.h"

namespace hearth::io {
namespace {

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

/// Whether every byte is 7; every page is in memory then.
bool all_seven(const TensorView& tensor) {
  return std::ranges::all_of(tensor.bytes, [](std::byte byte) { return byte == std::byte{7}; });
}

TEST(WeightFiles, ReleaseGivesMemoryBackAndKeepsTheBytes) {
  constexpr int64_t kBytes = 16 << 20;
  const TemporaryFolder folder;
  {
    const std::vector<std::byte> bytes(kBytes, std::byte{7});
    const auto tensor = [&](const char* name) {
      return TensorView{.name = name, .dtype = DType::u8, .shape = {kBytes}, .bytes = bytes};
    };
    write_safetensors(folder.path() / "model.safetensors", {tensor("a"), tensor("b")});
  }
  const WeightFiles files(folder.path());
  EXPECT_TRUE(all_seven(*files.find("a")) && all_seven(*files.find("b")));
  const int64_t before = resident_bytes();
  files.release(*files.find("a"));
  EXPECT_LT(resident_bytes(), before - kBytes / 2);
  EXPECT_GT(resident_bytes(), before - kBytes * 3 / 2);
  EXPECT_TRUE(all_seven(*files.find("a")) && all_seven(*files.find("b")));
}

}  // namespace
}  // namespace hearth::io
