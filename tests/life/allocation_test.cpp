#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <vector>

#include "data/images/image.h"
#include "malloc_count.h"
#include "run/from_recipe.h"
#include "run/trainer.h"
#include "temporary_folder.h"
#include "tiny_language_model.h"

namespace hearth {
namespace {

/// What allocator and kernel may move by without anything growing.
constexpr int64_t kFlatBytes = 256 << 10;

recipe::Recipe recipe_with(const std::string& model, const std::string& train, const std::string& rest = "") {
  return run::parse_recipe("model: {num_classes: 10, " + model +
                               "}\n"
                               "data: {kind: shapes, image_size: 8, count: 101, val_count: 20, flip: true, "
                               "crop_padding: 2, jitter: 0.2, threads: 2}\n"
                               "train: {batch: 8, log_every: 1, " +
                               train + "}\nthreads: 2\n" + rest,
                           "test");
}

TEST(Allocation, TheHookCountsEveryWay) {
  count_allocations(true);
  void* volatile kept = std::malloc(10);
  kept = std::realloc(kept, 20);
  std::free(kept);
  kept = std::calloc(2, 8);
  std::free(kept);
  kept = std::aligned_alloc(64, 64);
  std::free(kept);
  void* aligned = nullptr;
  EXPECT_EQ(posix_memalign(&aligned, 64, 64), 0);
  kept = aligned;
  std::free(kept);
  kept = new int64_t(3);
  delete static_cast<int64_t*>(kept);
  struct alignas(64) Line {
    char bytes[64];
  };
  kept = new Line;
  delete static_cast<Line*>(kept);
  count_allocations(false);
  EXPECT_EQ(allocations().this_thread, 7);
  EXPECT_EQ(allocations().own, 7);
  EXPECT_EQ(allocations().libraries, 0);
}

/// Trains, counting between the logging of step `first` and that of the last step but one.
AllocationCount allocations_of(const recipe::Recipe& recipe, int64_t first = 2) {
  const TemporaryFolder folder;
  AllocationCount count;
  const auto progress = [&](const run::Progress& p) {
    if (p.step == first) count_allocations(true);
    if (p.step != recipe.train.steps - 1) return;
    count = allocations();
    count_allocations(false);
  };
  run::Trainer trainer(tasks::Job(recipe), folder.path(),
                       {.progress = progress, .message = [](const std::string&) {}});
  trainer.run(false);
  return count;
}

struct Case {
  const char* name;
  const char* model;
  const char* train;
  const char* rest = "";
};
class AllocationOf : public testing::TestWithParam<Case> {};

TEST_P(AllocationOf, AHundredStepsIsNone) {
  const std::string train =
      std::string(GetParam().train) + "steps: 103, checkpoint_every: 1000, eval_every: 1000";
  const recipe::Recipe recipe = recipe_with(GetParam().model, train, GetParam().rest);
  const AllocationCount count = allocations_of(recipe);
  if (count.own != 0) print_allocations();
  EXPECT_EQ(count.own, 0);
  EXPECT_EQ(count.libraries, 0);
}

std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Runs, AllocationOf,
    testing::Values(Case{"mlp", "name: mlp, hidden: [32, 16], dropout: 0.1", "clip_norm: 1, ema: 0.9, "},
                    Case{"accumulated", "name: mlp, hidden: [32, 16]", "accumulate: 3, ",
                         "optimizer: {name: adamw}\n"},
                    Case{"simplecnn", "name: simplecnn", ""},
                    Case{"fp16", "name: mlp, hidden: [32, 16]", "", "precision: fp16\n"}),
    name_of);
INSTANTIATE_TEST_SUITE_P(SlowRuns, AllocationOf,
                         testing::Values(Case{"resnet18", "name: resnet18", ""},
                                         Case{"resnet18_bf16", "name: resnet18", "", "precision: bf16\n"}),
                         name_of);

TEST(Allocation, ACheckpointCostsTheTrainingThreadNone) {
  const AllocationCount count = allocations_of(
      recipe_with("name: mlp, hidden: [32, 16]", "steps: 103, checkpoint_every: 10, eval_every: 1000"));
  EXPECT_EQ(count.this_thread, 0);
  EXPECT_GT(count.own, 0);
  std::cout << "ten checkpoints: " << count.own << " allocations on the thread that writes them\n";
}

TEST(Allocation, TextCostsNoneOverTheEndOfAnEpoch) {
  for (const char* key : {"data.packing=true", "data.packing=false", "train.objective=dpo"}) {
    const TemporaryFolder data;
    write_tiny_model(data.path() / "model");
    std::string chats;
    const bool pairs = key == std::string("train.objective=dpo");
    for (size_t i = 0; i < 40; ++i) {
      const std::string answer(1 + i, 'b');
      chats += pairs ? preference_line("a", "c", answer) : chat_line("a", answer);
    }
    write_file_atomically(data.path() / "chat.jsonl", chats);
    const std::string folder = data.path().string();
    const recipe::Recipe recipe = run::parse_recipe(
        fmt::format("model: {{config: {0}/model/config.json}}\n"
                    "data: {{path: {0}/chat.jsonl, cache: {0}, context: 96, val_share: 0.2}}\n"
                    "train: {{batch: 4, log_every: 1, steps: 43, checkpoint_every: 1000, eval_every: 1000}}\n"
                    "threads: 2\n",
                    folder),
        "test", std::vector<std::string>{key});
    const AllocationCount count = allocations_of(recipe);
    if (count.own != 0) print_allocations();
    EXPECT_EQ(count.own, 0) << key;
  }
}

/// Images of several sizes and kinds, a folder per class.
void write_images(const fs::path& folder) {
  for (const std::string split : {"train", "test"}) {
    for (int i = 0; i < 24; ++i) {
      const fs::path path = folder / split / (i % 2 == 0 ? "even" : "odd");
      fs::create_directories(path);
      data::Image image{.height = 8 + i % 3, .width = 8 + i % 5, .channels = i % 4 == 0 ? 1 : 3};
      image.pixels.assign(static_cast<size_t>(image.height * image.width * image.channels),
                          static_cast<uint8_t>(10 * i));
      write_file_atomically(path / (std::to_string(i) + ".png"), data::encode_png(image));
    }
  }
}

TEST(Allocation, ImageFilesCostOnlyWhatTheirLibraryTakes) {
  const TemporaryFolder images;
  write_images(images.path());
  const recipe::Recipe recipe = run::parse_recipe(
      "model: {name: mlp, num_classes: 2, hidden: [8]}\n"
      "data: {kind: folder, path: '" +
          images.path().string() +
          "', image_size: 8, flip: true, threads: 1}\n"
          "train: {batch: 8, log_every: 1, steps: 103, checkpoint_every: 1000, eval_every: 1000}\nthreads: "
          "2\n",
      "test");
  // The loader's only thread has read the largest image before the count begins; of several, one might not.
  const AllocationCount count = allocations_of(recipe, 40);
  if (count.own != 0) print_allocations();
  EXPECT_EQ(count.own, 0);
  EXPECT_GT(count.libraries, 0);
  std::cout << "60 steps on PNG files: " << count.libraries << " allocations of libpng and zlib\n";
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

TEST(SlowMemory, StaysFlatOverAThousandSteps) {
  const TemporaryFolder folder;
  std::vector<int64_t> resident;
  const auto progress = [&](const run::Progress& p) {
    if (p.step % 100 == 0) resident.push_back(resident_bytes());
  };
  const recipe::Recipe recipe =
      recipe_with("name: simplecnn", "steps: 1101, checkpoint_every: 50, eval_every: 150");
  run::Trainer trainer(tasks::Job(recipe), folder.path(),
                       {.progress = progress, .message = [](const std::string&) {}});
  trainer.run(false);
  ASSERT_EQ(resident.size(), 11U);
  std::cout << "resident KiB every 100 steps:";
  for (const int64_t bytes : resident) std::cout << ' ' << bytes / 1024;
  std::cout << "\n";
  // The first evaluation comes after step 100 and maps its code.
  EXPECT_LE(*std::max_element(resident.begin(), resident.end()), resident[1] + kFlatBytes);
}

}  // namespace
}  // namespace hearth
