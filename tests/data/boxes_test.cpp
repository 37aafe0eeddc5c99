#include "data/boxes/boxes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/boxes/boxes_format.h"
#include "files.h"
#include "shared_data.h"

namespace hearth::data {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kImageWidth = 20, kImageHeight = 10;

void put_small_image(const fs::path& path) {
  put_file(path, encode_png(speckled(kImageHeight, kImageWidth, 3)));
}

std::vector<double> corners(const Box& box) { return {box.x0, box.y0, box.x1, box.y1}; }

std::string voc_object(std::string_view name, std::string_view box, std::string_view more = "") {
  std::string text = fmt::format("<object>\n<name>{}</name>{}<bndbox>", name, more);
  for (const char* corner : {"xmin", "ymin", "xmax", "ymax"}) {
    const size_t end = std::min(box.find(' '), box.size());
    text += fmt::format("<{0}>{1}</{0}>", corner, box.substr(0, end));
    box.remove_prefix(std::min(end + 1, box.size()));
  }
  return text + "</bndbox></object>\n";
}

std::string voc(std::string_view objects, int64_t width = kImageWidth, int64_t height = kImageHeight) {
  return fmt::format(
      "<annotation>\n<filename>a.png</filename><size><width>{}</width><height>{}</height></size>\n{}</"
      "annotation>",
      width, height, objects);
}

void put_voc(const fs::path& root, const std::string& name, std::string_view objects) {
  put_small_image(root / "JPEGImages" / (name + ".png"));
  put_file(root / "Annotations" / (name + ".xml"), voc(objects));
}

std::string fault_of(const fs::path& path, std::string_view split = "train",
                     BoxFormat format = BoxFormat::detect) {
  return error_of([&] { read_boxes(path, split, {.format = format}); });
}

TEST(VocBoxes, CornersCountFromOneAndClassesAreThoseOfBothSplits) {
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  put_voc(root, "b", voc_object("dog", "1 1 20 10", "<difficult>1</difficult>"));
  put_voc(root, "a",
          voc_object("cat", "3 2 5.5 7") + "<object><name>x</name><part><name>head</name><bndbox>" +
              "<xmin>1</xmin></bndbox></part><bndbox><xmin>2</xmin><ymin>2</ymin><xmax>4</xmax>" +
              "<ymax>4</ymax></bndbox></object>");
  put_file(root / "ImageSets/Main/train.txt", "b\n");
  put_file(root / "ImageSets/Main/val.txt", "a 1\n\n");
  const BoxedImages train = read_boxes(root, "train");
  EXPECT_THAT(train.class_names, ElementsAre("cat", "dog", "x"));
  EXPECT_THAT(train.category_ids, ElementsAre(1, 2, 3));
  ASSERT_EQ(train.images.size(), 1U);
  ASSERT_EQ(train.images[0].boxes.size(), 1U);
  EXPECT_THAT(corners(train.images[0].boxes[0]), ElementsAre(0, 0, 20, 10));
  EXPECT_EQ(train.images[0].boxes[0].label, 1);
  EXPECT_TRUE(train.images[0].boxes[0].difficult);
  EXPECT_EQ(train.images[0].boxes[0].area, 200);
  EXPECT_THAT(train.notes, IsEmpty());
  const BoxedImages test = read_boxes(root, "test");
  ASSERT_EQ(test.images.size(), 1U);
  ASSERT_EQ(test.images[0].boxes.size(), 2U);
  EXPECT_THAT(corners(test.images[0].boxes[0]), ElementsAre(2, 1, 5.5, 7));
  EXPECT_EQ(test.images[0].boxes[1].label, 2);
}

TEST(VocBoxes, BoxesThatCannotBeAreNotedByLine) {
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  put_voc(root, "a",
          voc_object("cat", "5 5 5 8") + voc_object("cat", "25 2 30 4") + voc_object("cat", "15 2 30 4") +
              voc_object("cat", "0 1 4 4"));
  put_small_image(root / "JPEGImages/unlabeled.png");
  put_file(root / "Annotations/lost.xml", voc(""));
  const BoxedImages set = read_boxes(root, "train");
  ASSERT_EQ(set.images.size(), 2U);
  ASSERT_EQ(set.images[0].boxes.size(), 2U);
  EXPECT_THAT(corners(set.images[0].boxes[0]), ElementsAre(14, 1, 20, 4));
  EXPECT_THAT(corners(set.images[0].boxes[1]), ElementsAre(0, 0, 4, 4));
  EXPECT_THAT(set.notes, Contains(HasSubstr("a.xml:3: skipped a box without area (5 4 5 8)")));
  EXPECT_THAT(set.notes,
              Contains(HasSubstr("a.xml:5: skipped a box (24 1 30 4) outside its image of 20x10")));
  EXPECT_THAT(set.notes, Contains(HasSubstr("a.xml:7: clipped a box")));
  EXPECT_THAT(set.notes, Contains(HasSubstr("lost.xml: skipped, it has no image")));
  EXPECT_THAT(set.notes, Contains(HasSubstr("1 of 2 images have no boxes")));
  EXPECT_THAT(set.notes, Contains(HasSubstr("every fifth image is for tests, 2 are for 'train'")));
  EXPECT_EQ(set.notes.size(), 6U);
}

TEST(VocBoxes, BadFilesAreRefusedByLine) {
  const auto fault = [](const std::string& text) { return error_of([&] { parse_voc(text, "a.xml"); }); };
  EXPECT_EQ(fault(voc(voc_object("cat", "1 2 3 4"))), "no error");
  EXPECT_THAT(fault(voc(voc_object("cat", "1 2 3 4")).substr(0, 170)),
              HasSubstr("a.xml:4: the XML is damaged ("));
  EXPECT_THAT(fault(""), HasSubstr("a.xml:1: the XML is damaged (no element found); export it again"));
  EXPECT_EQ(fault(voc("<objects><name>cat</name></objects>")), "no error");
  EXPECT_EQ(fault("<xml/>"), "a.xml:1: expected VOC's labels in <annotation>, got <xml>");
  EXPECT_EQ(fault(voc(voc_object("cat", "1 two 3 4"))), "a.xml:4: expected a number, got 'two'");
  EXPECT_EQ(fault(voc(voc_object("cat", "1 nan 3 4"))), "a.xml:4: expected a number, got 'nan'");
  EXPECT_EQ(fault(voc(voc_object("cat", "1 1e999 3 4"))), "a.xml:4: expected a number, got '1e999'");
  EXPECT_EQ(fault(voc("", -3)), "a.xml:2: expected the side of an image in pixels, got -3");
  EXPECT_EQ(fault(voc(voc_object("", "1 2 3 4"))), "a.xml:3: the object has no <name>; add its class");
  EXPECT_EQ(fault(voc("\n<object><name>cat</name></object>")),
            "a.xml:4: the object needs xmin, ymin, xmax and ymax in its <bndbox>");
  EXPECT_EQ(fault(voc("<object><bndbox><xmin>1</xmin><xmin>2</xmin></bndbox></object>")),
            "a.xml:3: the object has two <xmin>; delete one");
  std::string deep = "<annotation>";
  for (int i = 0; i < 100000; ++i) deep += "<a>";
  EXPECT_EQ(fault(deep), "a.xml:1: elements nested more than 32 deep are not supported");
}

TEST(VocBoxes, EntitiesAreNotExpanded) {
  std::string bomb = "<!DOCTYPE annotation [<!ENTITY a \"ha\">\n";
  for (char c = 'b'; c < 'z'; ++c) {
    bomb += fmt::format("<!ENTITY {} \"", c);
    for (int i = 0; i < 10; ++i) bomb += fmt::format("&{};", static_cast<char>(c - 1));
    bomb += "\">\n";
  }
  bomb += "]>\n<annotation><filename>&y;</filename></annotation>";
  EXPECT_EQ(error_of([&] { parse_voc(bomb, "a.xml"); }),
            "a.xml:1: the XML declares an entity, which is not supported; write its text instead");
  const std::string outside =
      "<!DOCTYPE annotation [<!ENTITY a SYSTEM \"file:///etc/passwd\">]>\n<annotation>&a;</annotation>";
  EXPECT_EQ(error_of([&] { parse_voc(outside, "a.xml"); }),
            "a.xml:1: the XML declares an entity, which is not supported; write its text instead");
}

TEST(VocBoxes, AHundredThousandBoxes) {
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += voc_object("cat", "1 2 3 4");
  const VocFile file = parse_voc(voc(objects), "a.xml");
  EXPECT_EQ(file.objects.size(), 100000U);
  EXPECT_EQ(file.objects.back().line, 3 + 2 * 99999);
}

TEST(VocBoxes, ImagesByTheirFileName) {
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  put_small_image(root / "images/a.png");
  put_file(root / "annotations/1.xml", voc(voc_object("cat", "1 1 3 3")));
  const BoxedImages set = read_boxes(root, "train");
  ASSERT_EQ(set.images.size(), 1U);
  EXPECT_EQ(set.images[0].file, root / "images/a.png");
  EXPECT_EQ(set.images[0].boxes.size(), 1U);
  put_file(root / "annotations/2.xml", voc(voc_object("cat", "1 1 3 3")));
  EXPECT_THAT(fault_of(root), HasSubstr("2.xml label this image; keep one of them"));
}

TEST(VocBoxes, FoldersOfSplits) {
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  put_small_image(root / "train/1.png");
  put_file(root / "train/1.xml", voc(voc_object("dog", "1 1 5 5")));
  put_small_image(root / "valid/2.png");
  put_file(root / "valid/2.xml", voc(voc_object("cat", "1 1 5 5"), 0, 0));
  const BoxedImages test = read_boxes(root, "test");
  EXPECT_THAT(test.class_names, ElementsAre("cat", "dog"));
  ASSERT_EQ(test.images.size(), 1U);
  EXPECT_EQ(test.images[0].file, root / "valid/2.png");
  EXPECT_EQ(test.images[0].width, kImageWidth);
  EXPECT_EQ(read_boxes(root, "train").images[0].file, root / "train/1.png");
}

TEST(Boxes, BloodCells) {
  HEARTH_SHARED_DATA(path, "bccd");
  // The held-out images are those of val.txt; test.txt is not read.
  const BoxedImages train = read_boxes(path, "train"), test = read_boxes(path, "test");
  EXPECT_THAT(train.class_names, ElementsAre("Platelets", "RBC", "WBC"));
  EXPECT_EQ(train.images.size(), 205U);
  EXPECT_EQ(test.images.size(), 87U);
  std::vector<int64_t> counts(3);
  size_t num_left_out = 0;
  for (const BoxedImages* set : {&train, &test}) {
    for (const BoxedImage& image : set->images)
      for (const Box& box : image.boxes) ++counts[static_cast<size_t>(box.label)];
    num_left_out += static_cast<size_t>(std::ranges::count_if(
        set->notes, [](const std::string& note) { return note.find("without area") != note.npos; }));
  }
  EXPECT_THAT(counts, ElementsAre(292, 3350 - 2, 301));
  EXPECT_EQ(num_left_out, 2U);
  EXPECT_THAT(check_boxes(test).faults, IsEmpty());
}

TEST(Boxes, Raccoons) {
  HEARTH_SHARED_DATA(path, "raccoon");
  const BoxedImages train = read_boxes(path, "train"), test = read_boxes(path, "test");
  EXPECT_EQ(train.images.size(), 160U);
  EXPECT_EQ(test.images.size(), 40U);
  size_t num_boxes = 0;
  for (const BoxedImages* set : {&train, &test})
    for (const BoxedImage& image : set->images) num_boxes += image.boxes.size();
  EXPECT_EQ(num_boxes, 217U);
  EXPECT_THAT(check_boxes(test).faults, IsEmpty());
}

std::string coco(std::string_view annotations,
                 std::string_view images = R"({"id":7,"file_name":"a.png","width":20,"height":10})",
                 std::string_view categories = R"({"id":90,"name":"dog"},{"id":3,"name":"cat"})") {
  return fmt::format(R"({{"info":{{"x":[1]}},"annotations":[{}],"images":[{}],"categories":[{}]}})",
                     annotations, images, categories);
}

TEST(CocoBoxes, IdsHaveGapsAndListsAnyOrder) {
  const std::string text =
      coco(R"({"id":1,"image_id":7,"category_id":90,"bbox":[1.5,2,3,4],"area":9.25,"iscrowd":1},)"
           R"({"id":2,"image_id":7,"category_id":3,"bbox":[0,0,20,10],"segmentation":[[1,2]]})");
  const BoxedImages set = parse_coco(text, "a.json").labels;
  EXPECT_THAT(set.class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(set.category_ids, ElementsAre(3, 90));
  ASSERT_EQ(set.images.size(), 1U);
  EXPECT_EQ(set.images[0].id, 7);
  ASSERT_EQ(set.images[0].boxes.size(), 2U);
  const Box& box = set.images[0].boxes[0];
  EXPECT_THAT(corners(box), ElementsAre(1.5, 2, 4.5, 6));
  EXPECT_EQ(box.label, 1);
  EXPECT_TRUE(box.crowd);
  EXPECT_EQ(box.area, 9.25);
  EXPECT_EQ(set.images[0].boxes[1].area, 200);
  EXPECT_THAT(set.notes, IsEmpty());
}

TEST(CocoBoxes, BadFilesAreRefusedByObjectAndByte) {
  const auto fault = [](const std::string& text) { return error_of([&] { parse_coco(text, "a.json"); }); };
  const auto annotated = [&](std::string_view members) {
    return fault(coco(fmt::format(R"({{"image_id":7,"category_id":3,{}}})", members)));
  };
  EXPECT_EQ(annotated(R"("bbox":[1,2,3,4])"), "no error");
  EXPECT_THAT(annotated(R"("bbox":[1,2,3])"),
              HasSubstr("a.json: expected four numbers for bbox at annotation 1 (byte "));
  EXPECT_THAT(annotated(R"("bbox":[1,2,3,4,5])"), HasSubstr("expected four numbers for bbox"));
  EXPECT_THAT(annotated(R"("bbox":[1,2,3,"4"])"), HasSubstr("expected a number for bbox"));
  EXPECT_THAT(annotated(R"("bbox":[1,2,3,1e999])"), HasSubstr("expected a number that can be held for bbox"));
  EXPECT_THAT(annotated(R"("bbox":[1,2,3,NaN])"), HasSubstr("expected a number for bbox"));
  EXPECT_THAT(annotated(R"("bbox":[1e300,2,3,4])"),
              HasSubstr("annotation 1 (byte 34): expected a box in pixels"));
  EXPECT_THAT(annotated(R"("area":3)"),
              HasSubstr("expected an annotation with image_id, category_id and bbox"));
  EXPECT_THAT(fault(coco(R"({"image_id":7,"category_id":4,"bbox":[1,2,3,4]})")),
              HasSubstr("expected a category_id of the list \"categories\", got 4"));
  EXPECT_THAT(fault(coco(R"({"image_id":1.5,"category_id":4,"bbox":[1,2,3,4]})")),
              HasSubstr("expected an integer for image_id at annotation 1"));
  EXPECT_THAT(fault(coco("7")), HasSubstr("expected an object at annotation 1"));
  EXPECT_THAT(fault(coco("", R"({"id":1,"file_name":"a","width":2,"height":2},{"id":1,"file_name":"b"})")),
              HasSubstr("expected a unique id, got 1 again at image 2"));
  EXPECT_THAT(fault(coco("", R"({"id":1,"file_name":"a","width":-2,"height":2})")),
              HasSubstr("expected a width and a height of an image at image 1"));
  EXPECT_THAT(fault(coco("", R"({"id":1,"file_name":"a"})")),
              HasSubstr("expected width and height of image 1"));
  EXPECT_THAT(fault(coco("", "", "")), HasSubstr("expected at least one category"));
  EXPECT_THAT(fault(coco("", "", R"({"id":1,"name":"a"},{"id":1,"name":"b"})")),
              HasSubstr("expected a unique id, got 1 again at category 2"));
  EXPECT_THAT(fault("[]"),
              HasSubstr("a.json: expected a JSON object with images, annotations and categories"));
  EXPECT_THAT(fault("{}"), HasSubstr("with a list \"categories\", found none"));
  EXPECT_THAT(fault(R"({"images":[],"images":[]})"), HasSubstr("expected one list \"images\", found two"));
  const std::string whole = coco(R"({"image_id":7,"category_id":3,"bbox":[1,2,3,4]})");
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THAT(fault(whole.substr(0, size)), HasSubstr("a.json: expected ")) << size;
}

TEST(CocoBoxes, BoxesThatCannotBeAreNoted) {
  const BoxedImages set = parse_coco(coco(R"({"id":1,"image_id":7,"category_id":3,"bbox":[1,2,0,4]},)"
                                          R"({"id":1,"image_id":8,"category_id":3,"bbox":[1,2,3,4]},)"
                                          R"({"id":3,"image_id":7,"category_id":3,"bbox":[1,2,-3,4]},)"
                                          R"({"id":4,"image_id":7,"category_id":3,"bbox":[18,2,6,4]})"),
                                     "a.json")
                              .labels;
  EXPECT_THAT(set.notes,
              ElementsAre(HasSubstr("annotation 1 (byte 34): skipped a box without area"),
                          HasSubstr("skipped, there is no image 8"), HasSubstr("skipped a box without area"),
                          HasSubstr("annotation 4"), HasSubstr("1 annotations have the id")));
  ASSERT_EQ(set.images[0].boxes.size(), 1U);
  EXPECT_THAT(corners(set.images[0].boxes[0]), ElementsAre(18, 2, 20, 6));
}

TEST(CocoBoxes, FilesOfSplitsWithImagesInTheirFolders) {
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  put_small_image(root / "train2017/a.png");
  put_small_image(root / "val2017/sub/a.png");
  const std::string annotation = R"({"image_id":7,"category_id":3,"bbox":[1,2,3,4]})";
  put_file(root / "annotations/instances_train2017.json", coco(annotation));
  put_file(root / "annotations/instances_val2017.json",
           coco(annotation, R"({"id":7,"file_name":"sub/a.png","width":20,"height":10},)"
                            R"({"id":9,"file_name":"sub/b.png","width":20,"height":10})"));
  put_file(root / "annotations/captions_val2017.json", "{}");
  const BoxedImages test = read_boxes(root, "test");
  ASSERT_EQ(test.images.size(), 1U);
  EXPECT_EQ(test.images[0].file, root / "val2017/sub/a.png");
  EXPECT_THAT(test.notes,
              ElementsAre(AllOf(HasSubstr("skipped image 9, there is no "), HasSubstr("sub/b.png")),
                          HasSubstr("skipped 1 of 2 categories, which have no annotations (dog)")));
  EXPECT_EQ(read_boxes(root, "train").images[0].file, root / "train2017/a.png");
  put_file(root / "annotations/instances_val2017.json",
           coco(annotation, R"({"id":7,"file_name":"sub/a.png","width":20,"height":10})",
                R"({"id":3,"name":"cow"})"));
  EXPECT_THAT(fault_of(root, "test"), HasSubstr(": its categories differ from those of "));
  fs::remove_all(root / "train2017");
  EXPECT_THAT(fault_of(root, "train"), HasSubstr("expected the images of "));
}

void put_yolo(const fs::path& root, std::string_view labels) {
  put_file(root / "data.yaml",
           "path: .\ntrain: images/train\nval: images/val\nnames: {0: cat, 1: dog}\nnc: 2\n");
  put_small_image(root / "images/train/a.png");
  put_small_image(root / "images/val/b.png");
  put_file(root / "labels/train/a.txt", labels);
  put_file(root / "labels/val/b.txt", "0 0.5 0.5 1 1");
}

TEST(YoloBoxes, CentersAndOutlines) {
  const TemporaryFolder folder;
  put_yolo(folder.path(), "1 0.5 0.5 0.5 0.2\n\n0.0 .1 .1 .3 .1 .2 .4\r\n");
  put_file(folder.path() / "labels/train/lost.txt", "");
  const BoxedImages set = read_boxes(folder.path(), "train");
  EXPECT_THAT(set.class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(set.category_ids, ElementsAre(0, 1));
  ASSERT_EQ(set.images.size(), 1U);
  ASSERT_EQ(set.images[0].boxes.size(), 2U);
  EXPECT_THAT(corners(set.images[0].boxes[0]), ElementsAre(5, 4, 15, 6));
  EXPECT_EQ(set.images[0].boxes[0].label, 1);
  EXPECT_THAT(corners(set.images[0].boxes[1]),
              ElementsAre(testing::DoubleNear(2, 1e-12), testing::DoubleNear(1, 1e-12),
                          testing::DoubleNear(6, 1e-12), testing::DoubleNear(4, 1e-12)));
  EXPECT_THAT(
      set.notes,
      ElementsAre(HasSubstr("lost.txt: skipped, it has no image"),
                  HasSubstr("data.yaml: only the bounding boxes of outlines and oriented boxes are used")));
  EXPECT_EQ(read_boxes(folder.path() / "data.yaml", "test").images[0].file,
            folder.path() / "images/val/b.png");
}

TEST(YoloBoxes, BadLinesAreRefused) {
  const auto fault = [](std::string_view text) {
    BoxedImage image{.width = 20, .height = 10};
    std::vector<std::string> notes;
    YoloLines lines{.num_classes = 2};
    const std::string error = error_of([&] { parse_yolo(text, "a.txt", lines, image, notes); });
    return error == "no error" && !notes.empty() ? notes[0] : error;
  };
  EXPECT_EQ(fault("0 0.5 0.5 1 1\n1 0 0 0.1 0.1"), "no error");
  EXPECT_EQ(fault("\n0 0.5 0.5 1"),
            "a.txt:2: expected a class and 4 numbers, or the points of an outline, got 4 columns");
  EXPECT_THAT(fault("0 0.5 0.5 1 1 0.9"), HasSubstr("a.txt:1: expected a class and 4 numbers"));
  EXPECT_THAT(fault("0 0 0 1 1 0 1 0.5"), HasSubstr("got 8 columns"));
  EXPECT_EQ(fault("2 0.5 0.5 1 1"), "a.txt:1: expected a class from 0 to 1, got 2");
  EXPECT_EQ(fault("-1 0.5 0.5 1 1"), "a.txt:1: expected a class from 0 to 1, got -1");
  EXPECT_EQ(fault("cat 0.5 0.5 1 1"), "a.txt:1: expected a class's number, got 'cat'");
  EXPECT_EQ(fault("0 0.5 nan 1 1"), "a.txt:1: expected a number, got 'nan'");
  EXPECT_THAT(fault("0 120 30 40 50"),
              HasSubstr("a.txt:1: expected numbers from 0 to 1 (fractions of the image's"));
  EXPECT_THAT(fault("0 0.5 0.5 0 1"), HasSubstr("a.txt:1: skipped a box without area"));
}

TEST(YoloBoxes, BadIndexesAreRefused) {
  const auto fault = [](const std::string& text) {
    return error_of([&] { parse_yolo_index(text, "data.yaml"); });
  };
  EXPECT_EQ(fault("train: a\nnames: [x]\nroboflow: {a: 1}\ndownload: |\n  import os\n"), "no error");
  EXPECT_THAT(fault("train: a\n"), HasSubstr("data.yaml:1: expected the classes' names"));
  EXPECT_THAT(fault("a: 1\nnc: 3\nnames: [x, y]\n"),
              HasSubstr("data.yaml:2: expected nc: 2, the number of names, got '3'"));
  EXPECT_THAT(fault("names: {0: a, 2: b}\n"), HasSubstr("found none for class 1"));
  EXPECT_THAT(fault("names:\n  0: a\n  x: b\n"),
              HasSubstr("data.yaml:3: expected a class's number, got 'x'"));
  EXPECT_THAT(fault("names: [[a]]\n"), HasSubstr("data.yaml:1: expected text for a class's name"));
  EXPECT_THAT(fault("- a\n"), HasSubstr("data.yaml:1: expected keys like"));
  EXPECT_THAT(fault("names: [a"), HasSubstr("expected YAML, got "));
}

TEST(YoloBoxes, ListsAndPathsThatMissTheirFolder) {
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  put_small_image(root / "train/images/a.png");
  put_small_image(root / "valid/images/b.png");
  put_file(root / "train/labels/a.txt", "0 0.5 0.5 1 1");
  put_file(root / "val.txt", "./valid/images/b.png\n");
  put_file(root / "data.yaml", "train: ../train/images\nval: val.txt\nnames: [cat]\n");
  EXPECT_EQ(read_boxes(root, "train").images[0].file, root / "train/images/a.png");
  EXPECT_THAT(fault_of(root, "test"), HasSubstr("expected labels of the images, such as "));
  put_file(root / "valid/labels/b.txt", "");
  const BoxedImages test = read_boxes(root, "test");
  EXPECT_THAT(test.notes, ElementsAre(HasSubstr("1 of 1 images have no boxes")));
  put_file(root / "val.txt", "./valid/images/b.png\nnone.png\n");
  EXPECT_THAT(fault_of(root, "test"), HasSubstr("val.txt:2: expected an image (PNG, "));
}

TEST(Boxes, FormatsAreFoundByLooking) {
  const TemporaryFolder folder;
  EXPECT_THAT(fault_of(folder.path() / "none"), HasSubstr("expected labels at "));
  EXPECT_THAT(fault_of(folder.path()), HasSubstr("expected labels of objects in "));
  put_yolo(folder.path(), "0 0.5 0.5 1 1");
  put_voc(folder.path(), "a", voc_object("cat", "1 1 3 3"));
  EXPECT_THAT(fault_of(folder.path()), AllOf(HasSubstr("expected labels in one format in "),
                                             HasSubstr("data.yaml (YOLO)"), HasSubstr("XML files (VOC)")));
  EXPECT_EQ(read_boxes(folder.path(), "train", {.format = BoxFormat::voc}).category_ids[0], 1);
  EXPECT_EQ(read_boxes(folder.path(), "train", {.format = BoxFormat::yolo}).category_ids[0], 0);
  EXPECT_THAT(fault_of(folder.path(), "train", BoxFormat::coco), HasSubstr("expected a JSON file of COCO"));
  EXPECT_THAT(fault_of(folder.path(), "trian", BoxFormat::yolo),
              HasSubstr("expected the split train or test"));
}

TEST(Boxes, ImagesAreCheckedAgainstTheirLabels) {
  const TemporaryFolder folder;
  const fs::path& root = folder.path();
  put_voc(root, "a", voc_object("cat", "1 1 3 3"));
  put_file(root / "Annotations/b.xml",
           voc(voc_object("cat", "1 1 9 9") + voc_object("cat", "1 1 9 9"), 40, 10));
  put_small_image(root / "JPEGImages/b.png");
  put_file(root / "Annotations/c.xml", voc(""));
  put_file(root / "JPEGImages/c.png", encode_png(speckled(4, 4, 3)).substr(0, 50));
  const BoxCheck check = check_boxes(read_boxes(root, "train"));
  ASSERT_EQ(check.classes.size(), 1U);
  EXPECT_EQ(check.classes[0].boxes, 3);
  EXPECT_EQ(check.classes[0].images, 2);
  EXPECT_EQ(check.classes[0].small, 3);
  EXPECT_EQ(check.images_without_boxes, 1);
  EXPECT_THAT(check.faults,
              ElementsAre(HasSubstr("b.png: the image has 20x10 pixels, but its labels are for 40x10"),
                          HasSubstr("c.png: cannot decode the PNG")));
}

TEST(ImageHeader, SizesAndOrientations) {
  const ImageHeader png = read_image_header(bytes_of(encode_png(speckled(6, 5, 3))), "a.png");
  EXPECT_EQ(png.height, 6);
  EXPECT_EQ(png.width, 5);
  const std::string jpeg = encode_jpeg(speckled(6, 5, 3));
  EXPECT_EQ(read_image_header(bytes_of(jpeg), "a.jpg").width, 5);
  EXPECT_EQ(read_image_header(bytes_of(jpeg), "a.jpg").orientation, 1);
  for (const bool little : {false, true}) {
    const std::string tiff = little ? std::string("II*\0\10\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0", 22)
                                    : std::string("MM\0*\0\0\0\10\0\1\1\x12\0\3\0\0\0\1\0\6\0\0", 22);
    const std::string exif = std::string("\xFF\xE1\0\36Exif\0\0", 10) + tiff;
    const ImageHeader turned =
        read_image_header(bytes_of(jpeg.substr(0, 2) + exif + jpeg.substr(2)), "a.jpg");
    EXPECT_EQ(turned.height, 6);
    EXPECT_EQ(turned.orientation, 6) << little;
  }
  EXPECT_EQ(error_of([&] { read_image_header(bytes_of(jpeg.substr(0, 20)), "a.jpg"); }),
            "a.jpg: the image has no width or height; replace the file");
}

}  // namespace
}  // namespace hearth::data
