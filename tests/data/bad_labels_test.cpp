#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "data/boxes/boxes.h"
#include "data/boxes/boxes_format.h"
#include "data/masks/masks.h"
#include "files.h"

/// Labels of objects that cannot be read (data.bad_records).
namespace hearth::data {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Five images of 20 x 10 pixels without splits, of which e.png is held out.
constexpr const char* kImages[] = {"a", "b", "c", "d", "e"};

/// Labels in one format: each image has a box of a cat, b.png has one that cannot be read.
struct Case {
  const char* name;
  const char* folder;                              ///< of the images
  void (*put)(const fs::path& root, bool is_bad);  ///< writes the labels
  const char* fault;
};

/// Calls one(image, is_bad) for each image, and returns the texts, separated by commas.
template <typename One>
std::string joined(bool is_bad, const One& one) {
  std::string text;
  for (const std::string image : kImages)
    text += (text.empty() ? "" : ",") + one(image, is_bad && image == "b");
  return text;
}

void label_yolo(const fs::path& root, bool is_bad) {
  put_file(root / "data.yaml", "train: images\nnames: [cat]\n");
  for (const std::string image : kImages)
    put_file(root / "labels" / (image + ".txt"),
             is_bad && image == "b" ? "0 0.5 0.5 0 0.5\n0 0.5 0.5 x 1\n" : "0 0.5 0.5 0.5 0.5\n");
}

void label_voc(const fs::path& root, bool is_bad) {
  for (const std::string image : kImages)
    put_file(root / "Annotations" / (image + ".xml"),
             fmt::format("<annotation>\n<object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>{}"
                         "</xmax><ymax>5</ymax></bndbox></object></annotation>",
                         is_bad && image == "b" ? "x" : "5"));
}

void label_cvat(const fs::path& root, bool is_bad) {
  std::string images;
  for (const std::string image : kImages)
    images += fmt::format(
        "<image name=\"{}.png\" width=\"20\" height=\"10\">\n<box label=\"cat\" xtl=\"1\" ytl=\"1\" "
        "xbr=\"{}\" ybr=\"5\"/></image>\n",
        image, is_bad && image == "b" ? "x" : "5");
  put_file(root / "annotations.xml", "<annotations>\n" + images + "</annotations>");
}

void label_labelme(const fs::path& root, bool is_bad) {
  for (const std::string image : kImages)
    put_file(root / (image + ".json"),
             fmt::format(R"({{"shapes":[{{"label":"cat","points":[[1,1],[5,{}]],"shape_type":"rectangle"}}],)"
                         R"("imagePath":"{}.png"}})",
                         is_bad && image == "b" ? "\"x\"" : "5", image));
}

void label_csv(const fs::path& root, bool is_bad) {
  std::string rows = "filename,class,xmin,ymin,xmax,ymax\n";
  for (const std::string image : kImages) rows += fmt::format("{}.png,cat,1,1,5,5\n", image);
  put_file(root / "a.csv", rows + (is_bad ? "b.png,cat,1,1,x,5\n" : "b.png,cat,1,1,6,5\n"));
}

void label_createml(const fs::path& root, bool is_bad) {
  const auto one = [](const std::string& image, bool bad) {
    return fmt::format(R"({{"annotations":[{{"label":"cat","coordinates":{{"x":5,"y":5,"width":4{}}}}}],)"
                       R"("image":"{}.png"}})",
                       bad ? "" : R"(,"height":4)", image);
  };
  put_file(root / "a.json", "[" + joined(is_bad, one) + "]");
}

void label_label_studio(const fs::path& root, bool is_bad) {
  const auto one = [](const std::string& image, bool bad) {
    return fmt::format(
        R"({{"annotations":[{{"result":[{{"original_width":20,"original_height":{},"type":"rectanglelabels",)"
        R"("value":{{"x":10,"y":10,"width":50,"height":50,"rectanglelabels":["cat"]}}}}]}}],)"
        R"("data":{{"image":"{}.png"}}}})",
        bad ? 0 : 10, image);
  };
  put_file(root / "a.json", "[" + joined(is_bad, one) + "]");
}

std::string coco_text(const std::string& annotations, const std::string& images) {
  return fmt::format(R"({{"annotations":[{}],"images":[{}],"categories":[{{"id":1,"name":"cat"}}]}})",
                     annotations, images);
}

std::string coco_images() {
  return joined(false, [](const std::string& image, bool) {
    return fmt::format(R"({{"id":{},"file_name":"{}.png","width":20,"height":10}})", image[0] - 'a', image);
  });
}

void label_coco(const fs::path& root, bool is_bad) {
  const auto one = [](const std::string& image, bool bad) {
    return fmt::format(R"({{"bbox":[1,1,4{}],"segmentation":[[1,1,5,1,5,5]],"category_id":1,"image_id":{}}})",
                       bad ? "" : ",4", image[0] - 'a');
  };
  put_file(root / "a.json", coco_text(joined(is_bad, one), coco_images()));
}

constexpr Case kCases[] = {
    {"yolo", "images", label_yolo, "b.txt:2: expected a number, got 'x'"},
    {"voc", "JPEGImages", label_voc, "b.xml:2: expected a number, got 'x'"},
    {"cvat", "images", label_cvat, "annotations.xml:5: expected a number, got 'x'"},
    {"labelme", "", label_labelme, "b.json: expected a number for points at shape 1 "},
    {"csv", "", label_csv, "a.csv:7: expected a number for xmax, got 'x'"},
    {"createml", "", label_createml, "a.json: expected an annotation with label and coordinates"},
    {"label_studio", "", label_label_studio, "a.json: task 2 (byte "},
    {"coco", "", label_coco, "a.json: expected four numbers for bbox at annotation 2 "},
};

class BadLabels : public testing::TestWithParam<Case> {
 protected:
  void put(bool is_bad) {
    const fs::path images = folder_.path() / GetParam().folder;
    for (const std::string image : kImages)
      put_file(images / (image + ".png"), encode_png(speckled(10, 20, 3)));
    GetParam().put(folder_.path(), is_bad);
  }
  std::vector<std::string> names(const BoxedImages& set) const {
    std::vector<std::string> names;
    for (const BoxedImage& picture : set.images) names.push_back(picture.file.stem().string());
    return names;
  }

  TemporaryFolder folder_;
};

TEST_P(BadLabels, AreLeftOutWithTheirImage) {
  put(true);
  const fs::path& root = folder_.path();
  EXPECT_THAT(error_of([&] { read_boxes(root, "train"); }), HasSubstr(GetParam().fault));
  BoxedImages train = read_boxes(root, "train", {.skip_bad = true});
  EXPECT_THAT(names(train), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(train.images.at(1).fault, HasSubstr(GetParam().fault));
  EXPECT_THAT(train.images[1].boxes, IsEmpty());
  remove_unreadable(train, 1);
  EXPECT_THAT(names(train), ElementsAre("a", "c", "d"));
  for (const BoxedImage& picture : train.images) EXPECT_EQ(picture.boxes.size(), 1U) << picture.file;
  EXPECT_THAT(train.notes.at(0),
              AllOf(HasSubstr("data.bad_records=skip leaves out 1 of 4 images with boxes: "),
                    HasSubstr(GetParam().fault)));
  EXPECT_THAT(train.notes, testing::Not(Contains(HasSubstr("without area"))));
  // The split of the other images does not change.
  BoxedImages held_out = read_boxes(root, "test", {.skip_bad = true});
  remove_unreadable(held_out, 1);
  EXPECT_THAT(names(held_out), ElementsAre("e"));
}

TEST_P(BadLabels, GoodOnesAreTheSameWithAndWithoutSkip) {
  put(false);
  const BoxedImages plain = read_boxes(folder_.path(), "train");
  BoxedImages skipping = read_boxes(folder_.path(), "train", {.skip_bad = true});
  remove_unreadable(skipping, 1);
  EXPECT_EQ(names(skipping), names(plain));
  EXPECT_EQ(skipping.notes, plain.notes);
}

INSTANTIATE_TEST_SUITE_P(Formats, BadLabels, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

/// The faults of a COCO file's images by name, and its notes.
std::vector<std::string> coco_faults(const std::string& annotations, const std::string& images) {
  const BoxedImages set = parse_coco(coco_text(annotations, images), "a.json", {.skip_bad = true}).labels;
  std::vector<std::string> faults = set.notes;
  for (const BoxedImage& picture : set.images)
    if (!picture.fault.empty()) faults.push_back(picture.file.string() + ": " + picture.fault);
  return faults;
}

TEST(BadCoco, RecordsOfEveryKindHaveTheirImage) {
  const std::string good = R"({"image_id":0,"category_id":1,"bbox":[1,1,4,4]})";
  EXPECT_THAT(coco_faults(good, coco_images()), IsEmpty());
  EXPECT_THAT(coco_faults(good + R"(,{"image_id":2,"category_id":7,"bbox":[1,1,4,4]})", coco_images()),
              ElementsAre(HasSubstr("c.png: a.json: annotation 2 (byte ")));
  EXPECT_THAT(coco_faults(R"({"image_id":0,"category_id":1,"bbox":[1,1,1e9,4]},)" + good, coco_images()),
              ElementsAre(HasSubstr("a.png: a.json: annotation 1 (byte ")));
  EXPECT_THAT(coco_faults(good + R"(,{"category_id":1,"bbox":"x"})", coco_images()),
              ElementsAre(HasSubstr("whose image is not known: a.json: expected a list of four numbers")));
  const std::string image = R"(,{"id":9,"file_name":"f.png","width":"x","height":3})";
  EXPECT_THAT(coco_faults(good, coco_images() + image),
              ElementsAre(HasSubstr("f.png: a.json: expected an integer for width at image 6 ")));
  EXPECT_THAT(coco_faults(good, coco_images() + R"(,{"id":9,"file_name":"f.png"})"),
              ElementsAre(HasSubstr("f.png: a.json: expected width and height of image 9")));
  EXPECT_THAT(
      coco_faults(good, coco_images() + R"(,{"id":{},"file_name":"f.png"})"),
      ElementsAre(HasSubstr("whose image is not known: a.json: expected an integer for id at image 6")));
  // An annotation of a repeated image id could belong to either image, so both images are bad.
  EXPECT_THAT(coco_faults(good, coco_images() + R"(,{"id":0,"file_name":"f.png","width":20,"height":10})"),
              ElementsAre(HasSubstr("a.png: a.json: two images have the id 0"),
                          HasSubstr("f.png: a.json: two images have the id 0")));
}

TEST(BadCoco, CategoriesOfBadAnnotationsAreThoseOfBothSplits) {
  const std::string bad = coco_text(R"({"image_id":"x" ,"bbox":{},"category_id":1})", coco_images());
  const LabelOptions options{.skip_bad = true};
  EXPECT_TRUE(parse_coco(bad, "a.json", options).is_used.at(0));
  EXPECT_TRUE(parse_coco_classes(bad, "a.json", options).is_used.at(0));
  const std::string worse = coco_text(R"({"category_id":{}})", coco_images());
  EXPECT_FALSE(parse_coco_classes(worse, "a.json", options).is_used.at(0));
  EXPECT_THAT(error_of([&] { parse_coco_classes(worse, "a.json"); }), HasSubstr("for category_id"));
}

TEST(BadLabelFiles, RecordsWithoutAnImageAreNoted) {
  const LabelFile table = parse_box_table(
      "filename,class,xmin,ymin,xmax,ymax\n,cat,1,1,5,5\n,,,,,\na.png,cat,1,1,5,5\n", "a.csv", true);
  ASSERT_EQ(table.images.size(), 3U);
  EXPECT_EQ(table.images[0].fault, "a.csv:2: expected the name of an image");
  EXPECT_EQ(table.images[1].fault, "a.csv:3: expected the name of an image");
  EXPECT_EQ(table.images[2].objects.size(), 1U);
  const TemporaryFolder folder;
  for (const char* name : {"a.png", "b.png"}) put_file(folder.path() / name, encode_png(speckled(10, 20, 3)));
  put_file(folder.path() / "a.xml",
           "<annotations><image width=\"20\"/>\n<image name=\"a.png\"><box label=\"cat\" xtl=\"1\" ytl=\"1\" "
           "xbr=\"5\" ybr=\"5\"/></image></annotations>");
  const BoxedImages set = read_boxes(folder.path(), "train", {.skip_bad = true});
  EXPECT_EQ(set.images.size(), 1U);
  EXPECT_THAT(set.notes, Contains(HasSubstr("whose image is not known: ")));
}

TEST(BadLabelFiles, FilesOfAllImagesMustBeWhole) {
  EXPECT_THAT(error_of([] { parse_cvat("<annotations><image name=\"a\">", "a.xml", true); }),
              HasSubstr("a.xml:1: the XML is damaged ("));
  EXPECT_THAT(error_of([] { parse_createml("[{\"image\":\"a\"", "a.json", true); }), HasSubstr("a.json: "));
  EXPECT_THAT(error_of([] { parse_box_table("filename,class\n", "a.csv", true); }), HasSubstr("a.csv:1: "));
  // Files of one image are left out.
  EXPECT_THAT(parse_voc("<annotation><filename>b.png</filename>", "a.xml", true).fault,
              HasSubstr("a.xml:1: "));
  EXPECT_EQ(parse_voc("<annotation><filename>b.png</filename>", "a.xml", true).image, "b.png");
  EXPECT_THAT(parse_labelme("{\"shapes\":[", "a.json", true).images.at(0).fault, HasSubstr("a.json: "));
}

TEST(BadLabelFiles, AnImageWithoutAHeaderIsLeftOutToo) {
  const TemporaryFolder folder;
  for (const std::string image : kImages)
    put_file(folder.path() / "images" / (image + ".png"), encode_png(speckled(10, 20, 3)));
  label_yolo(folder.path(), false);
  put_file(folder.path() / "images/b.png", "no image");
  BoxedImages set = read_boxes(folder.path(), "train", {.skip_bad = true});
  remove_unreadable(set, 1);
  EXPECT_EQ(set.images.size(), 3U);
  EXPECT_THAT(set.notes.at(0), HasSubstr("leaves out 1 of 4 images with boxes: "));
}

TEST(BadLabelFiles, NothingToReadNamesTheFirstFault) {
  const TemporaryFolder folder;
  put_file(folder.path() / "a.xml", "<annotation><object/></annotation>");
  EXPECT_THAT(error_of([&] { read_boxes(folder.path(), "train", {.skip_bad = true}); }),
              HasSubstr("found none; the first fault: "));
}

TEST(BadOutlines, AreLeftOutWithTheirImage) {
  const TemporaryFolder folder;
  for (const std::string image : kImages)
    put_file(folder.path() / (image + ".png"), encode_png(speckled(10, 20, 3)));
  label_coco(folder.path(), true);
  MaskOptions options{.kind = "masks", .path = folder.path(), .num_classes = 2};
  EXPECT_THAT(error_of([&] { open_masks(options); }), HasSubstr("a.json: expected four numbers"));
  options.skip_bad = true;
  MaskOptions held_out = options;
  held_out.split = "test";
  EXPECT_THAT(decide_masks(options, held_out).class_names, ElementsAre("background", "cat"));
  const auto images = open_masks(options);
  ASSERT_EQ(images->size(), 3);
  EXPECT_THAT(images->where(1), HasSubstr("c.png"));
  EXPECT_THAT(images->notes(), Contains(AllOf(HasSubstr("leaves out 1 of 4 images with masks: "),
                                              HasSubstr("expected four numbers for bbox"))));
  EXPECT_TRUE(check_masks(*images).faults.empty());
}

}  // namespace
}  // namespace hearth::data
