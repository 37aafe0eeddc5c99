#include "data/split_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "data/boxes/boxes.h"
#include "data/class_files.h"
#include "data/masks/masks.h"
#include "files.h"

namespace hearth::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// From the last to the first choice.
constexpr const char* kHeldOut[] = {"testing", "test", "dev", "validation", "valid", "val"};

std::string small_image() { return encode_png(speckled(10, 20, 3)); }

TEST(SplitNames, ValIsPreferredToTest) {
  EXPECT_THAT(split_names("train"), ElementsAre("train", "training"));
  EXPECT_THAT(split_names("test"), ElementsAre("val", "valid", "validation", "dev", "test", "testing"));
  EXPECT_EQ(error_of([] { split_names("val"); }), "expected the split train or test, got 'val'");
}

TEST(SplitNames, TrainvalIsNotHeldOut) {
  EXPECT_TRUE(contains_split_name("instances_val2017", "val"));
  EXPECT_TRUE(contains_split_name("Validation", "val"));
  EXPECT_TRUE(contains_split_name("trainval", "train"));
  EXPECT_FALSE(contains_split_name("trainval", "val"));
  EXPECT_FALSE(contains_split_name("images", "test"));
}

/// Puts the held-out split under each name in turn, without removing earlier ones, and checks that held_out()
/// returns a path in a folder of that name.
template <typename Put, typename HeldOut>
void expect_each_is_preferred(const Put& put, const HeldOut& held_out) {
  for (const char* training : {"training", "train"}) put(training);
  for (const char* name : kHeldOut) {
    put(name);
    EXPECT_THAT(held_out(), HasSubstr(fmt::format("/{}/", name)));
  }
}

TEST(SplitNames, OfClasses) {
  const TemporaryFolder folder;
  expect_each_is_preferred(
      [&](const char* split) {
        for (const char* name : {"cat", "dog"})
          put_file(folder.path() / split / name / "a.png", small_image());
      },
      [&] {
        return list_class_files({.path = folder.path(), .is_training = false}).files.at(0).path.string();
      });
}

TEST(SplitNames, OfMasks) {
  const TemporaryFolder folder;
  expect_each_is_preferred(
      [&](const char* split) {
        put_file(folder.path() / split / "images/a.png", small_image());
        put_file(folder.path() / split / "masks/a.png", encode_png(speckled(10, 20, 1)));
      },
      [&] {
        return open_masks({.kind = "masks", .path = folder.path(), .split = "test", .num_classes = 2})
            ->where(0);
      });
}

/// Labels of a split in one format, in a folder of the split's name.
void expect_boxes(void (*put)(const fs::path& root, const std::string& split)) {
  const TemporaryFolder folder;
  expect_each_is_preferred(
      [&](const char* split) {
        put_file(folder.path() / split / "a.png", small_image());
        put(folder.path(), split);
      },
      [&] { return read_boxes(folder.path(), "test").images.at(0).file.string(); });
  EXPECT_THAT(read_boxes(folder.path(), "train").images.at(0).file.string(), HasSubstr("/train/a.png"));
}

TEST(SplitNames, OfVoc) {
  expect_boxes([](const fs::path& root, const std::string& split) {
    put_file(root / split / "a.xml",
             "<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax>"
             "<ymax>5</ymax></bndbox></object></annotation>");
  });
}

TEST(SplitNames, OfCoco) {
  expect_boxes([](const fs::path& root, const std::string& split) {
    put_file(root / split / "labels.json",
             R"({"images":[{"id":1,"file_name":"a.png","width":20,"height":10}],"categories":[{"id":1,)"
             R"("name":"cat"}],"annotations":[{"id":1,"image_id":1,"category_id":1,"bbox":[1,1,4,4]}]})");
  });
}

TEST(SplitNames, OfLabelFiles) {
  expect_boxes([](const fs::path& root, const std::string& split) {
    put_file(root / split / "a.csv", "filename,class,xmin,ymin,xmax,ymax\na.png,cat,1,1,5,5\n");
  });
}

TEST(SplitNames, OfYolo) {
  expect_boxes([](const fs::path& root, const std::string& split) {
    const fs::path index = root / "data.yaml";
    put_file(index, (fs::exists(index) ? read_file(index, 1 << 20) : std::string("names: [cat]\n")) +
                        fmt::format("{0}: {0}\n", split));
    put_file(root / split / "a.txt", "0 0.5 0.5 0.5 0.5\n");
  });
}

}  // namespace
}  // namespace hearth::data
