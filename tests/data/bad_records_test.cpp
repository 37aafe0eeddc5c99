#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "base/file.h"
#include "data/boxes/boxes.h"
#include "data/captions/captions.h"
#include "data/dataset.h"
#include "data/image_reader.h"
#include "data/masks/masks.h"
#include "data/read_check.h"
#include "files.h"

/// Files that cannot be read (data.bad_records), and images that are stored on their side (data.exif).
namespace hearth::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string good_png() { return encode_png(speckled(6, 5, 3)); }
std::string bad_png() { return good_png().substr(0, 60); }

TEST(ReadCheck, ListsFaultsInOrder) {
  std::mutex mutex;
  std::set<int64_t> seen;
  const ReadCheck check = check_reading(9, 3, [&](int64_t index) {
    {
      const std::lock_guard lock(mutex);
      seen.insert(index);
    }
    if (index % 2 == 1) user_error("{}: bad", index);
  });
  EXPECT_EQ(seen.size(), 9U);
  EXPECT_THAT(check.readable, ElementsAre(0, 2, 4, 6, 8));
  EXPECT_THAT(check.faults, ElementsAre("1: bad", "3: bad", "5: bad", "7: bad"));
  EXPECT_EQ(describe_skipped(check, "images"),
            "data.bad_records=skip leaves out 4 of 9 images: 1: bad; 3: bad; 5: bad; ...");
  EXPECT_EQ(describe_skipped({.readable = {0}}, "images"), "");
  EXPECT_EQ(error_of([] { describe_skipped({.faults = {"a: bad"}}, "images"); }),
            "none of the 1 images can be read; the first: a: bad");
}

TEST(BadRecords, ImagesOfClassesAreLeftOut) {
  const TemporaryFolder folder;
  for (const char* name :
       {"train/cat/1.png", "train/cat/3.png", "train/dog/1.png", "test/cat/1.png", "test/dog/1.png"})
    put_file(folder.path() / name, good_png());
  put_file(folder.path() / "train/cat/2.png", bad_png());
  DatasetOptions options{.kind = "folder", .path = folder.path(), .image_size = 4};
  std::vector<uint8_t> pixels(4 * 4 * 3);
  int32_t label = 0;
  EXPECT_THAT(error_of([&] { open_dataset(options)->read(1, pixels.data(), &label); }), HasSubstr("2.png: "));
  options.skip_bad = true;
  const auto dataset = open_dataset(options);
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_THAT(dataset->notes(), ElementsAre(HasSubstr("leaves out 1 of 4 images: ")));
  EXPECT_EQ(dataset->label(2), 1);
  for (int64_t i = 0; i < 3; ++i) dataset->read(i, pixels.data(), &label);
  EXPECT_TRUE(check_dataset(*dataset).faults.empty());
}

TEST(BadRecords, MasksAreLeftOutWithTheirImages) {
  const TemporaryFolder folder;
  const std::string mask =
      encode_png(Image{.height = 6, .width = 5, .channels = 1, .pixels = std::vector<uint8_t>(30)});
  for (const char* name : {"1.png", "2.png", "3.png"}) {
    put_file(folder.path() / "train/images" / name, good_png());
    put_file(folder.path() / "train/masks" / name, mask);
  }
  put_file(folder.path() / "train/images/1.png", bad_png());
  put_file(folder.path() / "train/masks/2.png", encode_png(speckled(2, 2, 1)));
  MaskOptions options{.kind = "masks", .path = folder.path(), .num_classes = 2};
  EXPECT_EQ(check_masks(*open_masks(options)).faults.size(), 2U);
  options.skip_bad = true;
  const auto images = open_masks(options);
  ASSERT_EQ(images->size(), 1);
  EXPECT_THAT(images->where(0), HasSubstr("3.png"));
  EXPECT_THAT(images->notes(), ElementsAre(HasSubstr("leaves out 2 of 3 images with masks: ")));
  EXPECT_TRUE(check_masks(*images).faults.empty());
}

TEST(BadRecords, ImagesWithBoxesAreLeftOut) {
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  for (const char* split : {"train", "val"}) {
    put_file(root / "images" / split / "1.png", good_png());
    put_file(root / "labels" / split / "1.txt", "0 0.5 0.5 1 1\n");
  }
  put_file(root / "images/train/2.png", bad_png());
  put_file(root / "data.yaml", "train: images/train\nval: images/val\nnames: [cat]\n");
  BoxedImages set = read_boxes(root, "train");
  ASSERT_EQ(set.images.size(), 2U);
  remove_unreadable(set, 2);
  ASSERT_EQ(set.images.size(), 1U);
  EXPECT_THAT(set.images[0].file, root / "images/train/1.png");
  EXPECT_THAT(set.notes.front(), HasSubstr("leaves out 1 of 2 images with boxes: "));
}

TEST(BadRecords, ImagesWithCaptionsAreDecoded) {
  const TemporaryFolder folder;
  put_file(folder.path() / "a.png", good_png());
  // The header is good, the pixels are cut short.
  put_file(folder.path() / "b.png", bad_png());
  std::vector<CaptionedImage> pictures = read_captions(folder.path(), "x");
  EXPECT_THAT(check_captioned(pictures, 2).faults, ElementsAre(HasSubstr("b.png: cannot decode the PNG")));
  put_file(folder.path() / "c.png", "no header");
  EXPECT_THAT(error_of([&] { read_captions(folder.path(), "x"); }), HasSubstr("c.png: "));
  pictures = read_captions(folder.path(), "x", Exif::apply, false, true);
  EXPECT_THAT(remove_unreadable(pictures, 2), HasSubstr("leaves out 2 of 3 images with captions: "));
  ASSERT_EQ(pictures.size(), 1U);
  EXPECT_EQ(pictures[0].size, Extent(6, 5));
}

/// A JPEG of 5x6 pixels that stands upright as 6x5.
std::string sideways() { return with_orientation(encode_jpeg(speckled(5, 6, 3)), 6); }
Image stored() { return decode_image(bytes_of(encode_jpeg(speckled(5, 6, 3))), 3, "f"); }

TEST(ExifOrientation, ImagesOfClassesAreTurned) {
  const TemporaryFolder folder;
  for (const char* name : {"train/cat/1.jpg", "train/dog/1.jpg", "test/cat/1.jpg", "test/dog/1.jpg"})
    put_file(folder.path() / name, sideways());
  DatasetOptions options{.kind = "folder", .path = folder.path(), .image_size = {6, 5}};
  std::vector<uint8_t> pixels(6 * 5 * 3);
  int32_t label = 0;
  const auto upright = open_dataset(options);
  upright->read(0, pixels.data(), &label);
  EXPECT_EQ(pixels, orient(stored(), 6).pixels);
  options.exif = Exif::ignore;
  options.image_size = {5, 6};
  const auto as_stored = open_dataset(options);
  as_stored->read(0, pixels.data(), &label);
  EXPECT_EQ(pixels, stored().pixels);
  EXPECT_NE(upright->content(0), as_stored->content(0));
}

TEST(ExifOrientation, AMaskFitsItsImageUprightOrAsStored) {
  const TemporaryFolder folder;
  const Image mask{.height = 5, .width = 6, .channels = 1, .pixels = [] {
                     std::vector<uint8_t> pixels(30);
                     pixels[3] = 1;
                     return pixels;
                   }()};
  put_file(folder.path() / "train/images/1.jpg", sideways());
  put_file(folder.path() / "train/images/2.jpg", sideways());
  put_file(folder.path() / "train/masks/1.png", encode_png(mask));
  put_file(folder.path() / "train/masks/2.png", encode_png(orient(mask, 6)));
  MaskOptions options{.kind = "masks", .path = folder.path(), .num_classes = 2};
  Image image, read;
  for (const int64_t index : {0, 1}) {
    open_masks(options)->read(index, image, read);
    EXPECT_EQ(image.pixels, orient(stored(), 6).pixels);
    EXPECT_EQ(read.pixels, orient(mask, 6).pixels) << index;
  }
  options.exif = Exif::ignore;
  open_masks(options)->read(0, image, read);
  EXPECT_EQ(image.pixels, stored().pixels);
  EXPECT_EQ(read.pixels, mask.pixels);
  EXPECT_THAT(error_of([&] { open_masks(options)->read(1, image, read); }),
              HasSubstr(" has 6x5; export the mask again"));
}

TEST(ExifOrientation, BoxesSayWhichPixelsTheyAreOf) {
  const TemporaryFolder folder;
  const auto coco = [](int64_t width, int64_t height) {
    return fmt::format(
        R"({{"images":[{{"id":1,"file_name":"1.jpg","width":{},"height":{}}}],"categories":[{{"id":1,)"
        R"("name":"a"}}],"annotations":[{{"id":1,"image_id":1,"category_id":1,"bbox":[0,0,2,3]}}]}})",
        width, height);
  };
  put_file(folder.path() / "1.jpg", sideways());
  const auto size_of = [&] {
    const BoxedImages set = read_boxes(folder.path() / "a.json", "train");
    return ImageReader(set, 64, 64, nullptr).read(0)->size();
  };
  // Made on the upright image, on the stored one, and on another.
  put_file(folder.path() / "a.json", coco(5, 6));
  EXPECT_EQ(size_of(), Extent(6, 5));
  EXPECT_EQ(check_boxes(read_boxes(folder.path() / "a.json", "train")).rotated_upright, 1);
  put_file(folder.path() / "a.json", coco(6, 5));
  EXPECT_EQ(size_of(), Extent(5, 6));
  EXPECT_EQ(check_boxes(read_boxes(folder.path() / "a.json", "train")).kept_as_stored, 1);
  put_file(folder.path() / "a.json", coco(6, 6));
  EXPECT_THAT(error_of(size_of), HasSubstr("1.jpg: the image has 5x6 pixels, but its labels are for 6x6"));
}

TEST(ExifOrientation, SharesOfYoloAreThoseOfTheUprightImage) {
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  for (const char* split : {"train", "val"}) {
    put_file(root / "images" / split / "1.jpg", sideways());
    put_file(root / "labels" / split / "1.txt", "0 0.5 0.5 1 0.5\n");
  }
  put_file(root / "data.yaml", "train: images/train\nval: images/val\nnames: [cat]\n");
  const BoxedImages upright = read_boxes(root, "train");
  EXPECT_EQ(upright.images[0].boxes[0].y1, 4.5);
  EXPECT_EQ(ImageReader(upright, 64, 64, nullptr).read(0)->pixels, orient(stored(), 6).pixels);
}

}  // namespace
}  // namespace hearth::data
