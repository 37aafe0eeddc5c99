#include "data/masks/outlined_masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "data/masks/fill_outline.h"
#include "files.h"
#include "temporary_folder.h"

namespace hearth::data {
namespace {

using testing::HasSubstr;

constexpr int64_t kHigh = 23, kWide = 31;

std::vector<uint8_t> filled(const Outline& outline) {
  Image mask{.height = kHigh, .width = kWide, .channels = 1};
  mask.pixels.assign(kHigh * kWide, 0);
  fill_outline(outline, 1, mask);
  return mask.pixels;
}

TEST(FillOutline, PolygonsCoverThePixelsOfPycocotools) {
  // Compressed run lengths and areas that pycocotools 2.0.11 gives for an image of 31 x 23.
  struct Case {
    std::vector<double> polygon;
    const char* runs;
    int64_t area;
  };
  const Case cases[] = {
      {{2.5, 3.0, 20.2, 1.1, 28.9, 15.7, 11.0, 21.4},
       R"(X22e02N2N2M4M2N2N2N1O0000O1000O010001N2O2N2M2O2N2N1N3No0)",
       324},
      {{5, 5, 15, 5, 15, 15, 5, 15}, R"(h3:=00000000000000000[;)", 100},
      {{-4.5, -3.2, 12.7, 8.1, 3.3, 30.9}, R"(0b064K01O1O001O1M2N3L4M2M4Mh<)", 194},
      {{10.5, 2.5, 25.5, 20.5, 4.2, 9.9, 28.0, 6.6, 8.8, 18.3},
       R"(m31f0001N100]O271LN61KN61JN818O70C0E0;1C1<50KC1<NF1:OH060LO40N0100O0020Y3)",
       102},
      {{30.0, 0.0, 31.0, 0.0, 31.0, 23.0, 30.0, 23.0}, R"(be0g0)", 23},
      {{5.75, 10.49, 25.76, 32.71, 23.99, 18.38, 32.66, 29.69, 5.46, -3.61, 1.22, 11.1, 33.95, 11.51},
       R"(Q11c03L4M3000O10DG:<0010O000001O0000000O2N1O1O1O1O1L_O0b00I090000000E)",
       236},
      {{20.4, -5.4, 3.97, 6.86, 36.15, 29.22},
       R"(R31f01N1O2N2O1N1O2O1N101O1O001O1O1O001O10O3N1O1N2O1N3M2N)",
       327},
      {{29.05, -2.69, 22.42, 14.46, 0.08, 38.73, -5.76, 29.59},
       R"(T21e01O1O1O1O1O100O1O1O1O1O1O00000000O10001O0O1N2N2O2MX2)",
       202},
  };
  for (const Case& each : cases) {
    Outline runs{.width = kWide, .height = kHigh};
    runs.runs = decode_coco_runs(each.runs, kHigh * kWide).value();
    const std::vector<uint8_t> want = filled(runs), got = filled({.polygons = {each.polygon}});
    EXPECT_EQ(std::ranges::count(want, 1), each.area);
    EXPECT_EQ(got, want) << each.runs;
  }
}

TEST(FillOutline, RunsAlongRowsStartAtTheirCorner) {
  const std::vector<uint8_t> made =
      filled({.runs = {1, 3, 2}, .by_columns = false, .left = 29, .top = 22, .width = 3, .height = 2});
  EXPECT_EQ(std::ranges::count(made, 1), 1);
  EXPECT_EQ(made[22 * kWide + 30], 1);
}

class Outlines : public testing::Test {
 protected:
  Outlines() {
    for (const char* name : {"a.png", "b.png"})
      put_file(folder_.path() / name, encode_png(speckled(6, 8, 3)));
  }
  MaskOptions options(const char* split = "train") const {
    return {.kind = "masks", .path = folder_.path(), .split = split};
  }
  /// The mask of an image, whose names of classes are these.
  std::vector<uint8_t> mask_of(const char* image, const std::vector<std::string>& names) const {
    for (const char* split : {"train", "test"}) {
      const auto masks = open_masks(options(split));
      EXPECT_EQ(masks->classes()[0].name, "background");
      for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(masks->classes().at(i + 1).name, names[i]);
      for (int64_t i = 0; i < masks->size(); ++i) {
        if (masks->where(i) != (folder_.path() / image).string()) continue;
        Image read, mask;
        masks->read(i, read, mask);
        EXPECT_EQ(read.pixels, speckled(6, 8, 3).pixels);
        return mask.pixels;
      }
    }
    return {};
  }
  /// Pixels [x0, x1) x [y0, y1) of a mask, painted over those before.
  static void paint(std::vector<uint8_t>& mask, int x0, int y0, int x1, int y1, uint8_t label) {
    mask.resize(48);
    for (int y = y0; y < y1; ++y)
      for (int x = x0; x < x1; ++x) mask[static_cast<size_t>(y) * 8 + static_cast<size_t>(x)] = label;
  }

  TemporaryFolder folder_;
};

TEST_F(Outlines, OfCocoArePolygonsAndRunLengths) {
  put_file(folder_.path() / "train.json",
           R"({"categories": [{"id": 3, "name": "cup"}, {"id": 7, "name": "plate"}],
    "images": [{"id": 1, "file_name": "a.png", "width": 8, "height": 6}],
    "annotations": [
      {"id": 1, "image_id": 1, "category_id": 7, "segmentation": [[1, 1, 7, 1, 7, 5, 1, 5]]},
      {"id": 2, "image_id": 1, "category_id": 3, "iscrowd": 1,
       "segmentation": {"size": [6, 8], "counts": [14, 2, 32]}}]})");
  put_file(folder_.path() / "val.json",
           R"({"categories": [{"id": 3, "name": "cup"}, {"id": 7, "name": "plate"}],
    "images": [{"id": 1, "file_name": "b.png", "width": 8, "height": 6}], "annotations": []})");
  std::vector<uint8_t> want;
  paint(want, 1, 1, 7, 5, 2);
  // Column 2, rows 2 and 3: the later object covers the earlier one.
  paint(want, 2, 2, 3, 4, 1);
  EXPECT_EQ(mask_of("a.png", {"cup", "plate"}), want);
  const MaskDecision decision = decide_masks(options(), options("test"));
  EXPECT_THAT(decision.class_names, testing::ElementsAre("background", "cup", "plate"));
  EXPECT_THAT(decision.notes, testing::IsEmpty());
}

TEST_F(Outlines, OfLabelMeAreFilesBesideImages) {
  for (const char* name : {"a", "b"}) {
    put_file(folder_.path() / (std::string(name) + ".json"),
             fmt::format(
                 R"({{"version": "5.0", "imagePath": "{}.png", "imageWidth": 8, "imageHeight": 6, "shapes": [
               {{"label": "cup", "shape_type": "polygon", "points": [[2, 1], [6, 1], [6, 4], [2, 4]]}},
               {{"label": "plate", "shape_type": "rectangle", "points": [[0, 0], [2, 2]]}}]}})",
                 name));
  }
  std::vector<uint8_t> want;
  paint(want, 2, 1, 6, 4, 1);
  paint(want, 0, 0, 2, 2, 2);
  EXPECT_EQ(mask_of("a.png", {"cup", "plate"}), want);
}

TEST_F(Outlines, OfBoxesAloneAreRefused) {
  put_file(folder_.path() / "labels.json", R"({"categories": [{"id": 1, "name": "cup"}],
    "images": [{"id": 1, "file_name": "a.png", "width": 8, "height": 6}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 3, 3]}]})");
  EXPECT_THAT(error_of([&] { open_masks(options()); }), HasSubstr("boxes and no outlines; use a detector"));
}

}  // namespace
}  // namespace hearth::data
