#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/boxes/boxes.h"
#include "data/boxes/boxes_format.h"
#include "data/data_folder.h"
#include "files.h"

namespace hearth::data {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kWidth = 20, kHeight = 10;

void put_image(const fs::path& path) { put_file(path, encode_png(speckled(kHeight, kWidth, 3))); }

std::vector<int> corners(const Box& box) {
  std::vector<int> rounded;
  for (const double at : {box.x0, box.y0, box.x1, box.y1})
    rounded.push_back(static_cast<int>(std::lround(at)));
  return rounded;
}

std::string coco(std::string_view annotations,
                 std::string_view images = R"({"id":7,"file_name":"a.png","width":20,"height":10})",
                 std::string_view categories = R"({"id":0,"name":"cells"},{"id":1,"name":"cat"})") {
  return fmt::format(R"({{"annotations":[{}],"images":[{}],"categories":[{}]}})", annotations, images,
                     categories);
}

std::string annotation(std::string_view members) {
  return fmt::format(R"({{"image_id":7,"category_id":1,{}}})", members);
}

/// The first box of an annotation with these members, and its outline.
BoxedImage one_image(std::string_view members) {
  return parse_coco(coco(annotation(members)), "a.json", {.keep_outlines = true}).labels.images.at(0);
}

TEST(CocoOutlines, ABoxIsThatOfThePolygons) {
  const BoxedImage picture = one_image(R"("segmentation":[[2,3,6,3,6,8,2,8],[10,1,12,1,12,2]],"bbox":[])");
  ASSERT_EQ(picture.boxes.size(), 1U);
  EXPECT_THAT(corners(picture.boxes[0]), ElementsAre(2, 1, 12, 8));
  EXPECT_EQ(picture.boxes[0].area, 20 + 1);
  ASSERT_EQ(picture.outlines.size(), 1U);
  EXPECT_EQ(picture.outlines[0].polygons.size(), 2U);
  EXPECT_EQ(one_image(R"("segmentation":[2,3,6,3,6,8],"area":4)").boxes[0].area, 4);
}

// Bitmap of 10 rows and 20 columns whose pixels (row 2 to 4, column 3 to 5) are set, by pycocotools 2.0.
TEST(CocoOutlines, ABoxIsThatOfTheRuns) {
  for (const char* counts : {R"([32,3,7,3,7,3,145])", R"("P137000Z4")"}) {
    const BoxedImage picture =
        one_image(fmt::format(R"("segmentation":{{"counts":{},"size":[10,20]}},"iscrowd":1)", counts));
    ASSERT_EQ(picture.boxes.size(), 1U) << counts;
    EXPECT_THAT(corners(picture.boxes[0]), ElementsAre(3, 2, 6, 5)) << counts;
    EXPECT_EQ(picture.boxes[0].area, 9);
    EXPECT_THAT(picture.outlines.at(0).runs, ElementsAre(32, 3, 7, 3, 7, 3, 145)) << counts;
  }
}

TEST(CocoOutlines, ARunAcrossColumnsHasAllRows) {
  Outline outline{.runs = {5, 8, 7}, .width = 2, .height = 10};
  const OutlineExtent extent = extent_of(outline).value();
  EXPECT_EQ(extent.y0, 0);
  EXPECT_EQ(extent.y1, 10);
  EXPECT_EQ(extent.x1, 2);
  outline.by_columns = false;
  outline.width = 10;
  outline.height = 2;
  EXPECT_EQ(extent_of(outline).value().x1, 10);
  outline.runs = {20};
  EXPECT_FALSE(extent_of(outline).has_value());
}

TEST(CocoOutlines, DamagedOnesAreRefused) {
  const auto fault = [](std::string_view members) { return error_of([&] { one_image(members); }); };
  EXPECT_THAT(fault(R"("segmentation":{"counts":[32,3],"size":[10,20]})"),
              HasSubstr("a.json: expected counts that add up to 20 x 10 pixels at annotation 1 (byte "));
  EXPECT_THAT(fault(R"("segmentation":{"counts":"P137","size":[10,20]})"), HasSubstr("counts that add up"));
  EXPECT_THAT(fault(R"("segmentation":{"counts":"oooooooooooooooo","size":[10,20]})"),
              HasSubstr("counts that add up"));
  EXPECT_THAT(fault(R"("bbox":[1,1,1,1],"segmentation":{"counts":[2,2],"size":[2,2]})"),
              HasSubstr("expected a segmentation of 20x10 pixels, as its image has, got 2x2"));
  EXPECT_THAT(fault(R"("segmentation":{"counts":[4],"size":[99999999,2]})"),
              HasSubstr("a height and a width"));
  EXPECT_THAT(fault(R"("segmentation":[[1,2,3]])"), HasSubstr("pairs of x and y"));
  EXPECT_THAT(fault(R"("area":3)"), HasSubstr("and bbox or segmentation"));
}

TEST(CocoOutlines, AnAnnotationOfNoAreaIsLeftOut) {
  for (const char* segmentation : {"[]", "[[1,2,3,4]]", "null", R"({"counts":[200],"size":[10,20]})"}) {
    const BoxedImages set =
        parse_coco(coco(annotation(fmt::format(R"("segmentation":{})", segmentation))), "a.json").labels;
    EXPECT_THAT(set.images[0].boxes, IsEmpty());
    EXPECT_THAT(set.notes, ElementsAre(HasSubstr("skipped, it has neither a box nor an outline with area")));
  }
}

TEST(CocoFiles, CategoriesWithoutAnnotationsAreLeftOutUnlessTheModelHasThem) {
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  for (const char* split : {"train", "valid"}) {
    put_image(root / split / "a.png");
    put_file(root / split / "_annotations.coco.json",
             coco(annotation(R"("bbox":[1,2,3,4])"), R"({"id":7,"file_name":"a.png","width":20,"height":10})",
                  R"({"id":0,"name":"cells"},{"id":1,"name":"cat"},{"id":2,"name":"dog"})"));
  }
  // An annotation of one split keeps its class in both.
  put_file(root / "train/_annotations.coco.json",
           coco(R"({"image_id":7,"category_id":2,"bbox":[1,2,3,4]})",
                R"({"id":7,"file_name":"a.png","width":20,"height":10})",
                R"({"id":0,"name":"cells"},{"id":1,"name":"cat"},{"id":2,"name":"dog"})"));
  for (const char* split : {"train", "test"}) {
    const BoxedImages set = read_boxes(root, split);
    EXPECT_THAT(set.class_names, ElementsAre("cat", "dog"));
    EXPECT_THAT(set.category_ids, ElementsAre(1, 2));
    EXPECT_EQ(set.images[0].boxes.at(0).label, split == std::string_view("train") ? 1 : 0);
    EXPECT_THAT(set.notes, ElementsAre(HasSubstr("skipped 1 of 3 categories, which have no annotations "
                                                 "(cells); model.num_classes=3 keeps them")));
  }
  EXPECT_EQ(read_boxes(root, "train", {.num_classes = 3}).class_names.size(), 3U);
  EXPECT_EQ(read_boxes(root, "train", {.num_classes = 2}).class_names.size(), 2U);
  EXPECT_EQ(read_boxes(root, "train", {.class_names = {"cat", "cells"}}).class_names.size(), 3U);
}

TEST(CocoFiles, IdsMayBeTextsAndPathsThoseOfWindows) {
  const TemporaryFolder folder;
  put_image(folder.path() / "images/a b.png");
  put_image(folder.path() / "images/c.png");
  put_file(folder.path() / "result.json",
           "\xEF\xBB\xBF" +
               coco(R"({"id":"x1","image_id":"img-2","category_id":"1","bbox":[1,2,3,4]})",
                    R"({"id":"img-2","file_name":"images\\a b.png","width":20,"height":10},)"
                    R"({"id":"img-3","file_name":"/home/me/pictures/c.png","width":20,"height":10})"));
  const BoxedImages set = read_boxes(folder.path(), "train");
  ASSERT_EQ(set.images.size(), 2U);
  EXPECT_EQ(set.images[0].file, folder.path() / "images/c.png");
  EXPECT_EQ(set.images[1].file, folder.path() / "images/a b.png");
  EXPECT_EQ(set.images[1].boxes.size(), 1U);
  EXPECT_THAT(set.notes, Contains(HasSubstr("1 images are not at the given paths")));
  EXPECT_THAT(set.class_names, ElementsAre("cat"));
}

TEST(CocoFiles, CategoryIdsThatAreTextsAreNumberedInTheirOrder) {
  const BoxedImages set = parse_coco(coco(R"({"image_id":7,"category_id":"dog","bbox":[1,2,3,4]})",
                                          R"({"id":7,"file_name":"a.png","width":20,"height":10})",
                                          R"({"id":"cat","name":"cat"},{"id":"dog","name":"dog"})"),
                                     "a.json")
                              .labels;
  EXPECT_THAT(set.class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(set.category_ids, ElementsAre(1, 2));
  EXPECT_EQ(set.images[0].boxes.at(0).label, 1);
}

TEST(OutsideOfTheData, CocoFileNames) {
  const TemporaryFolder outside, folder;
  const fs::path& root = folder.path();
  put_image(outside.path() / "secret.png");
  put_image(root / "set/b.png");
  fs::create_symlink(outside.path() / "secret.png", root / "set/link.png");
  const std::string absolute = (outside.path() / "secret.png").string();
  const std::string upward = "../../" + outside.path().filename().string() + "/secret.png";
  for (const std::string& name : {absolute, upward, std::string("link.png")}) {
    const std::string image = fmt::format(R"({{"id":7,"file_name":"{}","width":20,"height":10}})", name);
    put_file(root / "set/a.json", coco(annotation(R"("bbox":[1,2,3,4])"), image));
    EXPECT_THAT(error_of([&] { read_boxes(root / "set", "train"); }),
                AllOf(HasSubstr("a.json: image 7: "), HasSubstr("is outside of the data's folder"),
                      HasSubstr("set data.allow_outside=true")))
        << name;
    EXPECT_EQ(read_boxes(root / "set", "train", {.allow_outside = true}).images.size(), 1U) << name;
  }
}

TEST(OutsideOfTheData, YoloListsAndFolders) {
  const TemporaryFolder outside, folder;
  const fs::path& root = folder.path();
  put_image(outside.path() / "images/secret.png");
  put_file(outside.path() / "labels/secret.txt", "0 0.5 0.5 1 1");
  put_image(root / "images/b.png");
  put_file(root / "labels/b.txt", "0 0.5 0.5 1 1");
  put_file(root / "list.txt", (outside.path() / "images/secret.png").string() + "\n");
  fs::create_directory_symlink(outside.path(), root / "linked");
  const std::string upward = "../" + outside.path().filename().string() + "/images";
  for (const std::string& source : {std::string("list.txt"), std::string("linked/images"), upward,
                                    (outside.path() / "images").string()}) {
    put_file(root / "data.yaml", fmt::format("train: {}\nval: images\nnames: [cat]\n", source));
    EXPECT_THAT(error_of([&] { read_boxes(root, "train"); }), HasSubstr("data.allow_outside=true")) << source;
    EXPECT_EQ(read_boxes(root, "test").images.size(), 1U);
    EXPECT_EQ(read_boxes(root, "train", {.allow_outside = true}).images.size(), 1U) << source;
  }
}

TEST(OutsideOfTheData, VocImagesThatAreLinks) {
  const TemporaryFolder outside, folder;
  put_image(outside.path() / "secret.png");
  fs::create_symlink(outside.path() / "secret.png", folder.path() / "a.png");
  put_file(folder.path() / "a.xml",
           "<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax>"
           "<ymax>3</ymax></bndbox></object></annotation>");
  EXPECT_THAT(error_of([&] { read_boxes(folder.path(), "train"); }), HasSubstr("data.allow_outside=true"));
  EXPECT_EQ(read_boxes(folder.path(), "train", {.allow_outside = true}).images.size(), 1U);
}

TEST(YoloLabels, KeyPointsAreLeftOutAndTheBoxIsRead) {
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  put_file(root / "data.yaml", "train: images\nval: images\nnames: [cat]\nkpt_shape: [2, 2]\n");
  put_image(root / "images/a.png");
  put_file(root / "labels/a.txt", "0 0.5 0.5 0.5 0.2 0.1 0.1 0.9 0.9\n0 0.5 0.5 0.5 0.2\n");
  const BoxedImages set = read_boxes(root, "train");
  ASSERT_EQ(set.images[0].boxes.size(), 2U);
  EXPECT_THAT(corners(set.images[0].boxes[0]), ElementsAre(5, 4, 15, 6));
  EXPECT_THAT(set.notes, ElementsAre(HasSubstr("without their key points (1 objects)")));
  put_file(root / "labels/a.txt", "0 0.5 0.5 0.5 0.2 0.1 0.1\n");
  EXPECT_THAT(
      error_of([&] { read_boxes(root, "train"); }),
      HasSubstr("a.txt:1: expected a class, 4 numbers and 4 numbers of key points (kpt_shape), got 7"));
  put_file(root / "data.yaml", "train: images\nval: images\nnames: [cat]\nkpt_shape: [2, 7]\n");
  EXPECT_THAT(error_of([&] { read_boxes(root, "train"); }), HasSubstr("data.yaml:4: expected kpt_shape as"));
}

TEST(YoloLabels, ClassesInATextFile) {
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  for (int i = 0; i < 5; ++i) {
    put_image(root / fmt::format("{}.png", i));
    put_file(root / fmt::format("{}.txt", i), "1 0.5 0.5 0.5 0.2\n");
  }
  put_file(root / "classes.txt", "cat\r\ndog\r\n");
  const BoxedImages train = read_boxes(root, "train");
  EXPECT_THAT(train.class_names, ElementsAre("cat", "dog"));
  EXPECT_EQ(train.images.size(), 4U);
  EXPECT_EQ(train.images[0].boxes.at(0).label, 1);
  EXPECT_EQ(read_boxes(root / "classes.txt", "test").images.size(), 1U);
  EXPECT_THAT(error_of([&] { parse_class_names("cat\n\ndog\n", "classes.txt"); }),
              HasSubstr("classes.txt:2: expected the name of class 1"));
}

TEST(YoloLabels, ClassesInATextFileOfFoldersWithSplits) {
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  for (const char* split : {"train", "val"}) {
    put_image(root / "images" / split / "a.png");
    put_file(root / "labels" / split / "a.txt", "0 0.5 0.5 0.5 0.2\n");
  }
  put_file(root / "labels/classes.txt", "cat\n");
  EXPECT_EQ(read_boxes(root, "train").images.at(0).file, root / "images/train/a.png");
  EXPECT_EQ(read_boxes(root, "test").images.at(0).file, root / "images/val/a.png");
}

// A task as Label Studio 1.10 exports it, shortened.
std::string label_studio(std::string_view regions, std::string_view image = "/data/upload/3/0a1b2c3d-a.png") {
  return fmt::format(
      R"([{{"id":1,"annotations":[{{"id":5,"was_cancelled":false,"ground_truth":false,"result":[{}]}}],)"
      R"("file_upload":"0a1b2c3d-a.png","data":{{"image":"{}"}},"predictions":[]}}])",
      regions, image);
}

std::string region(std::string_view type, std::string_view value) {
  return fmt::format(R"({{"original_width":20,"original_height":10,"image_rotation":0,"value":{{{}}},)"
                     R"("id":"{}","from_name":"label","to_name":"image","type":"{}"}})",
                     value, type, type);
}

TEST(LabelStudio, RegionsBecomeBoxesAndOutlines) {
  const LabelFile file = parse_label_studio(
      label_studio(
          region("rectanglelabels",
                 R"("x":10,"y":20,"width":50,"height":40,"rotation":0,"rectanglelabels":["cat"])") +
          "," +
          region("polygonlabels",
                 R"("points":[[0,0],[50,0],[50,100]],"closed":true,"polygonlabels":["dog"])") +
          "," +
          region("ellipselabels",
                 R"("x":50,"y":50,"radiusX":10,"radiusY":20,"rotation":0,"ellipselabels":["cat"])") +
          "," + region("brushlabels", R"("format":"rle","rle":[0,1],"brushlabels":["cat"])") + "," +
          region("keypointlabels", R"("x":1,"y":1,"width":0.5,"keypointlabels":["nose"])") + "," +
          region("rectanglelabels",
                 R"("x":50,"y":0,"width":50,"height":50,"rotation":90,"rectanglelabels":["cat","red"])")),
      "a.json");
  ASSERT_EQ(file.images.size(), 1U);
  const LabeledImage& image = file.images[0];
  EXPECT_EQ(image.file, "/data/upload/3/0a1b2c3d-a.png");
  EXPECT_EQ(image.width, kWidth);
  ASSERT_EQ(image.objects.size(), 4U);
  EXPECT_THAT(corners(image.objects[0].box), ElementsAre(2, 2, 12, 6));
  EXPECT_TRUE(image.objects[0].outline.empty());
  EXPECT_THAT(corners(image.objects[1].box), ElementsAre(0, 0, 10, 10));
  EXPECT_EQ(image.objects[1].name, "dog");
  EXPECT_EQ(image.objects[1].outline.polygons.at(0).size(), 6U);
  EXPECT_THAT(corners(image.objects[2].box), ElementsAre(8, 3, 12, 7));
  // Turned clockwise about its upper left corner (10, 0), which becomes the upper right one.
  EXPECT_THAT(corners(image.objects[3].box), ElementsAre(5, 0, 10, 10));
  EXPECT_THAT(file.left_out,
              ElementsAre(std::pair<const std::string, int64_t>("brushlabels", 1),
                          std::pair<const std::string, int64_t>("further label of an object", 1),
                          std::pair<const std::string, int64_t>("keypointlabels", 1)));
}

TEST(LabelStudio, ShapesAndLabelsMayBeTwoRegionsOfOneId) {
  const std::string shape =
      R"({"original_width":20,"original_height":10,"value":{"x":0,"y":0,"width":50,"height":50},"id":"r","type":"rectangle"})";
  const std::string labeled =
      R"({"original_width":20,"original_height":10,"value":{"x":0,"y":0,"width":50,"height":50,"labels":["cat"]},"id":"r","type":"labels"})";
  const LabelFile file = parse_label_studio(label_studio(shape + "," + labeled), "a.json");
  EXPECT_EQ(file.images[0].objects.size(), 1U);
  EXPECT_THAT(file.left_out, IsEmpty());
  EXPECT_EQ(parse_label_studio(label_studio(shape), "a.json").left_out.at("shape without a label"), 1);
}

TEST(LabelStudio, OfSeveralAnnotationsOneIsRead) {
  const auto one = [](int x, std::string_view flags) {
    return fmt::format(
        R"({{"result":[{}],{}}})",
        region("rectanglelabels",
               fmt::format(R"("x":{},"y":0,"width":10,"height":50,"rectanglelabels":["cat"])", x)),
        flags);
  };
  const LabelFile file = parse_label_studio(
      fmt::format(R"([{{"annotations":[{},{},{}],"data":{{"img":"s3://b/x.png","text":"y"}}}},)"
                  R"({{"annotations":[],"data":{{"image":"z.png"}}}}])",
                  one(0, R"("was_cancelled":true)"), one(10, R"("was_cancelled":false)"),
                  one(20, R"("ground_truth":true)")),
      "a.json");
  ASSERT_EQ(file.images.size(), 1U);
  EXPECT_EQ(file.images[0].file, "s3://b/x.png");
  EXPECT_EQ(file.images[0].objects.at(0).box.x0, 4);
  EXPECT_EQ(file.left_out.at("further annotation of a task"), 1);
  EXPECT_EQ(file.left_out.at("task without annotations"), 1);
}

TEST(LabelStudio, OtherFilesAreRefused) {
  const auto fault = [](std::string_view text) {
    return error_of([&] { parse_label_studio(text, "a.json"); });
  };
  EXPECT_THAT(fault("{}"), HasSubstr("a.json: expected a JSON list of Label Studio's tasks"));
  EXPECT_THAT(fault(R"([{"image":"a.png","label":[]}])"), HasSubstr("not JSON-MIN"));
  EXPECT_THAT(fault(label_studio(R"({"type":"rectanglelabels","value":{"x":1,"y":1,"width":1,"height":1,)"
                                 R"("rectanglelabels":["cat"]}})")),
              HasSubstr("a.json: task 1 (byte "));
  const std::string whole = label_studio(region("x", R"("x":1)"));
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THAT(fault(whole.substr(0, size)), HasSubstr("a.json: expected ")) << size;
}

TEST(LabelStudio, AFolderAsItIsExported) {
  const TemporaryFolder folder;
  put_image(folder.path() / "images/0a1b2c3d-a.png");
  put_image(folder.path() / "images/unlabeled.png");
  const std::string box =
      region("rectanglelabels", R"("x":10,"y":20,"width":50,"height":40,"rectanglelabels":["cat"])");
  put_file(folder.path() / "project-1.json", label_studio(box));
  const BoxedImages set = read_boxes(folder.path(), "train");
  ASSERT_EQ(set.images.size(), 1U);
  EXPECT_EQ(set.images[0].boxes.size(), 1U);
  EXPECT_THAT(set.notes, Contains(HasSubstr("skipped 1 images without labels, such as unlabeled.png")));
  // The image's own name, and local files.
  fs::rename(folder.path() / "images/0a1b2c3d-a.png", folder.path() / "images/a.png");
  EXPECT_EQ(read_boxes(folder.path(), "train").images.size(), 1U);
  put_file(folder.path() / "project-1.json",
           label_studio(box, "/data/local-files/?d=sub%20set/images/a.png"));
  EXPECT_EQ(read_boxes(folder.path(), "train", {.format = BoxFormat::label_studio}).images.size(), 1U);
}

std::string cvat(std::string_view shapes, std::string_view more = "") {
  return fmt::format(
      "<?xml version=\"1.0\" "
      "encoding=\"utf-8\"?>\n<annotations>\n<version>1.1</version>\n<meta><task><labels>"
      "<label><name>cat</name></label></labels></task></meta>\n<image id=\"0\" name=\"sub/a.png\" "
      "width=\"20\" "
      "height=\"10\">\n{}</image>{}</annotations>",
      shapes, more);
}

TEST(Cvat, ShapesBecomeBoxesAndOutlines) {
  const LabelFile file = parse_cvat(
      cvat("<box label=\"cat\" occluded=\"0\" xtl=\"1.0\" ytl=\"2.0\" xbr=\"5.5\" ybr=\"6\" z_order=\"0\">"
           "<attribute name=\"x\">1</attribute></box>\n"
           "<box label=\"cat\" xtl=\"4\" ytl=\"4\" xbr=\"8\" ybr=\"6\" rotation=\"90.0\"/>\n"
           "<polygon label=\"dog\" points=\"1.0,1.0;9.0,1.0;9.0,8.0\"/>\n"
           "<mask label=\"dog\" rle=\"1, 2, 1, 2\" left=\"3\" top=\"4\" width=\"3\" height=\"2\"/>\n"
           "<ellipse label=\"dog\" cx=\"10\" cy=\"5\" rx=\"3\" ry=\"2\"/>\n"
           "<polyline label=\"dog\" points=\"1,1;2,2\"/><points label=\"dog\" points=\"1,1\"/>\n"
           "<skeleton label=\"dog\"><points label=\"n\" points=\"1,1\"/></skeleton><tag label=\"cat\"/>\n"),
      "a.xml");
  ASSERT_EQ(file.images.size(), 1U);
  const std::vector<LabeledObject>& objects = file.images[0].objects;
  ASSERT_EQ(objects.size(), 5U);
  EXPECT_EQ(objects[0].box.x1, 5.5);
  EXPECT_THAT(corners(objects[1].box), ElementsAre(5, 3, 7, 7));
  EXPECT_THAT(corners(objects[2].box), ElementsAre(1, 1, 9, 8));
  EXPECT_EQ(objects[2].where, "a.xml:8");
  EXPECT_THAT(corners(objects[3].box), ElementsAre(4, 4, 6, 6));
  EXPECT_FALSE(objects[3].outline.by_columns);
  EXPECT_THAT(corners(objects[4].box), ElementsAre(7, 3, 13, 7));
  EXPECT_EQ(file.left_out.size(), 4U);
  EXPECT_EQ(file.left_out.at("points"), 1);
}

TEST(Cvat, BadFilesAreRefusedByLine) {
  const auto fault = [](const std::string& text) { return error_of([&] { parse_cvat(text, "a.xml"); }); };
  EXPECT_EQ(fault("<annotation/>"), "a.xml:1: expected CVAT's labels in <annotations>, got <annotation>");
  EXPECT_THAT(fault("<annotations><track id=\"0\"></track></annotations>"),
              HasSubstr("a track of a video is not supported; export as 'CVAT for images 1.1'"));
  EXPECT_EQ(fault(cvat("<box label=\"cat\" xtl=\"1\"/>")),
            "a.xml:6: the element has no attribute ytl; export the labels again");
  EXPECT_EQ(fault(cvat("<box label=\"cat\" xtl=\"one\"/>")), "a.xml:6: expected a number, got 'one'");
  EXPECT_EQ(fault(cvat("<polygon label=\"cat\" points=\"1,1;2\"/>")), "a.xml:6: expected points as x,y;x,y");
  EXPECT_THAT(fault(cvat("<mask label=\"a\" rle=\"1\" left=\"0\" top=\"0\" width=\"1e6\" height=\"1e6\"/>")),
              HasSubstr("a.xml:6: expected runs in rle that add up to 1000000 x 1000000"));
  EXPECT_EQ(fault(cvat("<box xtl=\"1\" ytl=\"1\" xbr=\"2\" ybr=\"2\"/>")),
            "a.xml:6: the shape has no label; add its class");
  EXPECT_THAT(fault(cvat("").substr(0, 180)), HasSubstr("the XML is damaged ("));
}

TEST(Cvat, SubsetsAreSplits) {
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  put_image(root / "images/a.png");
  put_image(root / "images/Validation/b.png");
  const auto image = [](const char* name, const char* subset, const char* label) {
    return fmt::format(
        "<image name=\"{}\" subset=\"{}\" width=\"20\" height=\"10\"><box label=\"{}\" xtl=\"1\" "
        "ytl=\"1\" xbr=\"4\" ybr=\"4\"/></image>",
        name, subset, label);
  };
  put_file(root / "annotations.xml", "<annotations>" + image("a.png", "Train", "dog") +
                                         image("b.png", "Validation", "cat") + "</annotations>");
  const BoxedImages test = read_boxes(root, "test");
  EXPECT_THAT(test.class_names, ElementsAre("cat", "dog"));
  ASSERT_EQ(test.images.size(), 1U);
  EXPECT_EQ(test.images[0].file, root / "images/Validation/b.png");
  EXPECT_EQ(read_boxes(root, "train").images.at(0).file, root / "images/a.png");
}

std::string labelme(std::string_view shapes, std::string_view image = "..\\\\images\\\\a.png") {
  return fmt::format(R"({{"version":"5.4.1","flags":{{}},"shapes":[{}],"imagePath":"{}","imageData":null,)"
                     R"("imageHeight":10,"imageWidth":20}})",
                     shapes, image);
}

std::string shape(std::string_view type, std::string_view points) {
  return fmt::format(R"({{"label":"cat","points":[{}],"group_id":null,"shape_type":"{}","flags":{{}}}})",
                     points, type);
}

TEST(Labelme, ShapesBecomeBoxesAndOutlines) {
  const LabelFile file = parse_labelme(
      labelme(shape("polygon", "[1,1],[9,1],[9,8]") + "," + shape("rectangle", "[9,8],[2,3]") + "," +
              shape("circle", "[10,5],[12,5]") + "," + shape("mask", "[1,2],[3,4]") + "," +
              shape("line", "[1,2],[3,4]") + "," + shape("point", "[1,2]") + "," + shape("polygon", "[1,2]")),
      "a.json");
  const std::vector<LabeledObject>& objects = file.images.at(0).objects;
  ASSERT_EQ(objects.size(), 4U);
  EXPECT_THAT(corners(objects[0].box), ElementsAre(1, 1, 9, 8));
  EXPECT_FALSE(objects[0].outline.empty());
  EXPECT_THAT(corners(objects[1].box), ElementsAre(2, 3, 9, 8));
  EXPECT_TRUE(objects[1].outline.empty());
  EXPECT_THAT(corners(objects[2].box), ElementsAre(8, 3, 12, 7));
  EXPECT_THAT(corners(objects[3].box), ElementsAre(1, 2, 4, 5));
  EXPECT_EQ(file.left_out.at("line"), 1);
  EXPECT_EQ(file.left_out.at("polygon"), 1);
  EXPECT_THAT(error_of([&] { parse_labelme(labelme(shape("polygon", "[1,2,3]")), "a.json"); }),
              HasSubstr("a.json: expected points as [x, y] at shape 1 (byte "));
  EXPECT_THAT(error_of([&] { parse_labelme("{}", "a.json"); }), HasSubstr("expected a list \"shapes\""));
}

TEST(Labelme, AFileForEachImage) {
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  for (const char* name : {"a", "b", "c"}) put_image(root / "images" / (std::string(name) + ".png"));
  put_file(root / "labels/a.json", labelme(shape("rectangle", "[9,8],[2,3]")));
  put_file(root / "labels/b.json", labelme(shape("line", "[9,8],[2,3]"), "renamed.png"));
  const BoxedImages set = read_boxes(root, "train");
  ASSERT_EQ(set.images.size(), 2U);
  EXPECT_EQ(set.images[1].file, root / "images/b.png");
  EXPECT_THAT(set.notes, Contains(HasSubstr("skipped 1 labels of the kind 'line'")));
  EXPECT_THAT(set.notes, Contains(HasSubstr("skipped 1 images without labels, such as c.png")));
}

TEST(Csv, RowsBecomeBoxes) {
  const LabelFile file = parse_box_table(
      "filename,width,height,class,xmin,ymin,xmax,ymax\r\na.png,20,10,cat,1,2,5,6\r\n\"b, c.png\",20,10,\"a "
      "\"\"dog\"\"\",0,0,3,3\r\na.png,20,10,dog,2,2,3,3\r\nd.png,20,10,,,,,\r\n",
      "a.csv");
  ASSERT_EQ(file.images.size(), 3U);
  EXPECT_EQ(file.images[0].objects.size(), 2U);
  EXPECT_THAT(corners(file.images[0].objects[0].box), ElementsAre(1, 2, 5, 6));
  EXPECT_EQ(file.images[1].file, "b, c.png");
  EXPECT_EQ(file.images[1].objects.at(0).name, "a \"dog\"");
  EXPECT_THAT(file.images[2].objects, IsEmpty());
  const auto fault = [](std::string_view text) { return error_of([&] { parse_box_table(text, "a.csv"); }); };
  EXPECT_THAT(fault("filename,xmin,ymin,xmax,ymax\n"),
              HasSubstr("a.csv:1: expected columns filename, class"));
  EXPECT_EQ(fault("filename,class,xmin,ymin,xmax,ymax\na.png,cat,1,2,x,4\n"),
            "a.csv:2: expected a number for xmax, got 'x'");
  EXPECT_EQ(fault("filename,class,xmin,ymin,xmax,ymax\na.png,,1,2,3,4\n"),
            "a.csv:2: expected the name of a class");
}

TEST(Csv, RoboflowsFolders) {
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  for (const char* split : {"train", "valid"}) {
    put_image(root / split / "a.png");
    put_file(root / split / "_annotations.csv",
             fmt::format("filename,width,height,class,xmin,ymin,xmax,ymax\na.png,20,10,{},1,2,5,6\n", split));
  }
  const BoxedImages test = read_boxes(root, "test");
  EXPECT_THAT(test.class_names, ElementsAre("train", "valid"));
  EXPECT_EQ(test.images.at(0).file, root / "valid/a.png");
  EXPECT_EQ(test.images[0].boxes.at(0).label, 1);
  EXPECT_THAT(test.notes, IsEmpty());
}

TEST(Createml, CoordinatesAreCenters) {
  const TemporaryFolder folder;
  put_image(folder.path() / "a.png");
  put_file(
      folder.path() / "_annotations.createml.json",
      R"([{"image":"a.png","annotations":[{"label":"cat","coordinates":{"x":10,"y":5,"width":4,"height":6}}]}])");
  const BoxedImages set = read_boxes(folder.path(), "train");
  EXPECT_THAT(corners(set.images.at(0).boxes.at(0)), ElementsAre(8, 2, 12, 8));
  EXPECT_EQ(set.images[0].width, kWidth);
  const auto fault = [](std::string_view text) { return error_of([&] { parse_createml(text, "a.json"); }); };
  EXPECT_THAT(fault(R"([{"annotations":[]}])"), HasSubstr("an image with its name under \"image\""));
  EXPECT_THAT(fault(R"([{"image":"a","annotations":[{"label":"x","coordinates":{"x":1}}]}])"),
              HasSubstr("coordinates x, y, width, height at image 1"));
}

TEST(LabelFormats, AFolderOfTwoFormatsIsRefused) {
  const TemporaryFolder folder;
  put_image(folder.path() / "a.png");
  put_file(folder.path() / "a.json", labelme(shape("rectangle", "[9,8],[2,3]"), "a.png"));
  put_file(folder.path() / "annotations.xml", cvat(""));
  EXPECT_THAT(
      error_of([&] { read_boxes(folder.path(), "train"); }),
      AllOf(HasSubstr("expected labels in one format in "), HasSubstr("(CVAT)"), HasSubstr("(LabelMe)")));
  EXPECT_EQ(read_boxes(folder.path() / "a.json", "train").images.size(), 1U);
  EXPECT_THAT(error_of([&] { read_boxes(folder.path(), "train", {.format = BoxFormat::csv}); }),
              HasSubstr("expected label files (.csv)"));
}

}  // namespace
}  // namespace hearth::data
