// Tasks on images as a user types them: from a folder of files to predictions, and what goes wrong.
#include "cli/program.h"
#include "data/images/image.h"

namespace hearth {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kSide = 32;

std::string image_of(int64_t number, Extent size = kSide) {
  data::Image image{.height = size.height, .width = size.width, .channels = 3};
  auto state = static_cast<uint32_t>(number + 1);
  for (int64_t i = 0; i < size.num_pixels() * 3; ++i)
    image.pixels.push_back(static_cast<uint8_t>((state = state * 1664525U + 1013904223U) >> 24));
  return data::encode_png(image);
}

std::string mask_of(uint8_t label, int64_t side = kSide) {
  data::Image mask{.height = side, .width = side, .channels = 1};
  for (int64_t i = 0; i < side * side; ++i) mask.pixels.push_back(i % side < side / 2 ? label : 0);
  return data::encode_png(mask);
}

/// A folder in which one class has many images and another a single one.
class Classification : public Program {
 protected:
  Classification() {
    for (int i = 0; i < 8; ++i)
      put(fmt::format("set/train/{}/{}.png", i < 7 ? "cat" : "dog", i), image_of(i));
    put("set/test/cat/8.png", image_of(8));
    put("set/test/dog/9.png", image_of(9));
    put("c.yaml",
        "threads: 1\nmodel: {name: mlp, num_classes: 2, hidden: [8]}\ndata: {kind: folder, path: set, "
        "image_size: 8, flip: true, jitter: 0.2}\n"
        "train: {steps: 8, batch: 4, checkpoint_every: 3}\noptimizer: {lr: 0.05}\n");
  }
};

TEST_F(Classification, BalanceIsTheSameForWorkersThreadsAndAfterAStop) {
  const std::string train = "hearth train c.yaml train.shards=2 data.balance=true --out ";
  EXPECT_THAT(works(train + "one"),
              HasSubstr("8 training (each class drawn equally often) and 2 validation images"));
  works(train + "two devices=2 data.threads=3");
  works(train +
        "stopped train.steps=3 schedule.name=constant && "
        "hearth train --resume --out stopped train.steps=8 data.threads=0");
  works(train + "whole schedule.name=constant");
  works("hearth train c.yaml train.shards=2 --out plain");
  EXPECT_TRUE(get("one/model.safetensors") == get("two/model.safetensors"));
  EXPECT_TRUE(get("stopped/model.safetensors") == get("whole/model.safetensors"));
  EXPECT_FALSE(get("one/model.safetensors") == get("plain/model.safetensors"));
}

TEST_F(Classification, BalanceWithoutShufflingIsRefused) {
  refused("hearth train c.yaml data.balance=true data.shuffle=false --out a", {"data.shuffle=true"});
}

TEST_F(Classification, WeightsBringTheirNormalization) {
  works("hearth train c.yaml --out first");
  put("weights/config.json",
      R"({"pretrained_cfg": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}})");
  fs::copy_file(at("first/model.safetensors"), at("weights/model.safetensors"));
  const std::string train = "hearth train c.yaml init=weights/model.safetensors --out ";
  const std::string taken =
      "init: images are normalized by mean [0.485, 0.456, 0.406] and std [0.229, 0.224, 0.225] of "
      "weights/config.json instead of";
  EXPECT_EQ(count_of(works(train + "again"), taken), 1U);
  EXPECT_THAT(get("again/config.yaml"),
              AllOf(HasSubstr("normalize: \"given\""), HasSubstr("mean: [0.485, 0.456, 0.406]")));
  const std::string keys = "data.mean=[0.485,0.456,0.406] data.std=[0.229,0.224,0.225]";
  EXPECT_THAT(works(train + "right " + keys), testing::Not(HasSubstr("config.json")));
  EXPECT_EQ(get("right/model.safetensors"), get("again/model.safetensors"));
  EXPECT_THAT(works(train + "kept data.normalize=given"), HasSubstr("has another normalization"));
  EXPECT_FALSE(get("kept/model.safetensors") == get("again/model.safetensors"));
  // A run keeps what it began with, whatever becomes of the weights.
  fs::remove_all(at("weights"));
  EXPECT_THAT(works("hearth train --resume --out again train.steps=9"),
              testing::Not(HasSubstr("config.json")));
  EXPECT_THAT(get("again/config.yaml"), HasSubstr("mean: [0.485, 0.456, 0.406]"));
}

TEST_F(Classification, NormalizationByName) {
  works("hearth train c.yaml data.normalize=imagenet --out imagenet");
  EXPECT_THAT(get("imagenet/config.yaml"),
              AllOf(HasSubstr("std: [0.229, 0.224, 0.225]"), HasSubstr("normalize: \"given\"")));
  works("hearth train c.yaml 'data.mean=[0.1]' data.normalize=half --out half");
  works("hearth train c.yaml --out plain");
  EXPECT_EQ(get("half/model.safetensors"), get("plain/model.safetensors"));
  // Noise from 0 to 255 at 32 x 32 pixels, resized to 8 x 8.
  EXPECT_THAT(works("hearth train c.yaml data.normalize=dataset --out measured"),
              HasSubstr("images are normalized by the training images' mean [0.5029"));
  EXPECT_THAT(get("measured/config.yaml"), HasSubstr("mean: [0.5029"));
  refused("hearth train c.yaml data.channels=1 data.normalize=imagenet --out a", {"color images"});
}

TEST_F(Classification, ClassesComeFromTheDataAndStayWithTheRun) {
  const std::string yaml = get("c.yaml");
  put("c.yaml", yaml.substr(0, yaml.find(" num_classes: 2,")) + yaml.substr(yaml.find(" hidden")));
  EXPECT_THAT(works("hearth plan c.yaml"), HasSubstr("mlp"));
  EXPECT_THAT(works("hearth validate c.yaml"), HasSubstr("train: 8 images of 8x8x3, 2 classes"));
  EXPECT_THAT(works("hearth train c.yaml --out run"), HasSubstr("2 classes: cat, dog\n"));
  EXPECT_THAT(get("run/config.yaml"),
              AllOf(HasSubstr("num_classes: 2\n"), HasSubstr("class_names: [\"cat\", \"dog\"]")));
  EXPECT_THAT(get("run/report.html"), HasSubstr("dog"));
  const std::string loss = works("hearth eval run");
  // Another class in the folder would move the numbers of the others.
  fs::create_directories(at("set/train/ant"));
  fs::copy_file(at("set/train/dog/7.png"), at("set/train/ant/7.png"));
  for (const char* line : {"train --resume --out run train.steps=9",
                           "train c.yaml --resume --out run train.steps=9", "eval run"})
    refused(fmt::format("hearth {}", line), {"'ant' is not one of the trained classes", "cat, dog"});
  fs::remove_all(at("set/train/ant"));
  EXPECT_EQ(works("hearth eval run"), loss);
  fs::rename(at("set"), at("moved"));
  refused("hearth eval run", {"'set'"});
  EXPECT_EQ(works("hearth eval run data.path=moved"), loss);
  works("hearth train --resume --out run data.path=moved train.steps=9");
}

TEST_F(Classification, AnExportNeedsNoTrainingFolder) {
  works(
      "hearth train c.yaml --out run && hearth export run --out exported && hearth export run --out m.onnx");
  const auto line = [&](const std::string& from) {
    return works(fmt::format("hearth predict {} 8.png | grep 8.png", from));
  };
  put("8.png", image_of(8));
  const std::string said = line("run");
  EXPECT_THAT(said, AllOf(HasSubstr("cat"), HasSubstr("dog")));
  EXPECT_THAT(get("exported/model.safetensors"), HasSubstr(R"(cat\",\"dog)"));
  EXPECT_THAT(get("m.onnx"), HasSubstr(R"(cat","dog)"));
  fs::rename(at("set"), at("moved"));
  EXPECT_EQ(line("exported"), said);
  // Another folder's classes are not the model's.
  put("other/train/yak/1.png", image_of(1));
  put("other/train/zebu/1.png", image_of(2));
  EXPECT_EQ(line("exported data.path=other"), said);
}

TEST_F(Classification, AFolderPerClassIsEnough) {
  for (int i = 0; i < 20; ++i)
    put(fmt::format("plain/{}/{}.png", i % 2 == 0 ? "ant" : "bee", i), image_of(i));
  EXPECT_THAT(works("hearth validate c.yaml data.path=plain"),
              HasSubstr("plain has no validation split: 3 of 20 images are held out"));
  EXPECT_THAT(works("hearth train c.yaml data.path=plain --out run"), HasSubstr("2 classes: ant, bee\n"));
  refused("hearth train c.yaml data.path=plain data.val_share=0 --out a", {"no image is held out"});
}

TEST_F(Classification, KeptImagesTrainToTheSameBits) {
  for (const char* keep : {"0", "500B", "1MiB"})
    works(fmt::format("hearth train c.yaml data.keep_images={0} --out run{0}", keep));
  EXPECT_THAT(works("hearth plan c.yaml data.keep_images=1MiB"), HasSubstr("image cache, at most"));
  EXPECT_TRUE(get("run0/model.safetensors") == get("run500B/model.safetensors"));
  EXPECT_TRUE(get("run0/model.safetensors") == get("run1MiB/model.safetensors"));
}

class Segmentation : public Program {
 protected:
  Segmentation() {
    for (int i = 0; i < 4; ++i) {
      put(fmt::format("set/train/images/{}.png", i), image_of(i));
      put(fmt::format("set/train/masks/{}.png", i), mask_of(1 + i % 2));
    }
    put("set/val/images/9.png", image_of(9));
    put("set/val/masks/9.png", mask_of(1));
    put("set/classes.txt", "wall\nfloor\ndoor\n");
    put("s.yaml",
        "threads: 1\nmodel: {name: unet, num_classes: 3, width: 4}\ndata: {kind: masks, path: set, "
        "image_size: 16}\n"
        "train: {steps: 2, batch: 2}\noptimizer: {lr: 0.01}\n");
  }
};

TEST_F(Segmentation, TrainsEvaluatesAndPredicts) {
  const std::string said = works("hearth train s.yaml --out run");
  EXPECT_THAT(said, HasSubstr("4 training and 1 validation images with masks of 3 classes"));
  const std::string last = said.substr(said.rfind('\n', said.size() - 2) + 1);
  EXPECT_EQ(last.substr(0, 8), "mIoU: 0.") << said;
  EXPECT_THAT(works("hearth eval run"), HasSubstr(last.substr(0, last.size() - 1)));
  EXPECT_THAT(get("run/report.html"), AllOf(HasSubstr("<th>IoU</th>"), HasSubstr("<td>door</td>")));
  EXPECT_THAT(works("hearth predict run set/val/images"), HasSubstr("run/predictions/9.png"));
  for (const char* name : {"9.png", "9_color.png", "9_overlay.png"})
    EXPECT_TRUE(has(std::string("run/predictions/") + name)) << name;
  // In the image's own size, whatever the model takes.
  const std::string file = get("run/predictions/9.png");
  const data::Image made = data::decode_numbers(std::as_bytes(std::span(file)), "9.png");
  EXPECT_EQ(made.size(), Extent(kSide));
  EXPECT_EQ(made.channels, 1);
  EXPECT_LT(*std::ranges::max_element(made.pixels), 3);
  works("hearth predict run set/val/images/9.png --out elsewhere data.resize=false");
  EXPECT_TRUE(has("elsewhere/9_overlay.png"));
}

TEST_F(Segmentation, KeptImagesTrainToTheSameBits) {
  works("hearth train s.yaml train.epochs=3 train.steps=0 --out plain");
  works("hearth train s.yaml train.epochs=3 train.steps=0 data.keep_images=1MiB --out kept");
  EXPECT_TRUE(get("plain/model.safetensors") == get("kept/model.safetensors"));
  EXPECT_EQ(last_eval_loss("plain"), last_eval_loss("kept"));
}

TEST_F(Segmentation, WhatMasksMeanIsDecidedOnceAndKept) {
  fs::remove(at("set/classes.txt"));
  for (int i = 0; i < 4; ++i) put(fmt::format("set/train/masks/{}.png", i), mask_of(255));
  put("set/val/masks/9.png", mask_of(255));
  const std::string note = "in the masks 0 is class 0, 255 is class 1 (0 and 255 are the only values)";
  EXPECT_THAT(works("hearth validate s.yaml model.num_classes=2"),
              AllOf(HasSubstr(note), HasSubstr("class 1              2048 pixels (50.00%)")));
  EXPECT_THAT(works("hearth train s.yaml model.num_classes=2 --out run train.checkpoint_every=1"),
              HasSubstr(note));
  EXPECT_THAT(get("run/config.yaml"), HasSubstr("class_numbers: [0, 255]"));
  // Other masks do not change what the run was trained with.
  put("set/val/masks/9.png", mask_of(1));
  EXPECT_THAT(
      works("hearth train --resume --out run train.steps=3 data.balance=false --accept-changed-inputs"),
      Not(HasSubstr("in the masks")));
  EXPECT_THAT(works("hearth eval run"), HasSubstr("mIoU"));
  EXPECT_THAT(works("hearth validate s.yaml model.num_classes=3"),
              HasSubstr("warning: no training mask has a pixel of 2 of 3 classes: class 1, class 2"));
  EXPECT_THAT(works("hearth validate s.yaml model.num_classes=2 segment.ignore=255"), HasSubstr("warning"));
}

TEST_F(Segmentation, RepeatedFaultsAreCounted) {
  for (int i = 0; i < 4; ++i) put(fmt::format("set/train/masks/{}.png", i), mask_of(1, 8));
  const auto result = shell("hearth validate s.yaml");
  EXPECT_THAT(result.err, HasSubstr("4 of 4 images of the train split"));
  EXPECT_THAT(result.out, HasSubstr("(and 3 more like it)"));
  EXPECT_EQ(count_of(result.out, "bad: "), 1U);
}

TEST_F(Segmentation, ALastBatchThatCannotTrainIsLeftOut) {
  const std::string deeplab =
      "hearth validate s.yaml model.name=deeplabv3_resnet50 model.width=0 train.batch=3";
  EXPECT_THAT(works(deeplab), HasSubstr("3 classes; each epoch leaves out 1 (data.drop_last)"));
  refused(deeplab + " data.drop_last=false", {"at least 2 values per channel"});
  const std::string train = "hearth train s.yaml train.epochs=2 train.steps=0 train.batch=3 --out ";
  EXPECT_THAT(works(train + "all data.image_size=64"), HasSubstr("done: 4 steps"));
  EXPECT_THAT(works(train + "dropped data.drop_last=true"), HasSubstr("done: 2 steps"));
}

TEST_F(Segmentation, BalanceDrawsRareClassesMoreOften) {
  for (int i = 4; i < 6; ++i) {
    put(fmt::format("set/train/images/{}.png", i), image_of(i));
    put(fmt::format("set/train/masks/{}.png", i), mask_of(0));
  }
  const std::string train = "hearth train s.yaml train.epochs=2 train.steps=0 --out ";
  EXPECT_THAT(works(train + "balanced data.balance=true"),
              HasSubstr("6 training (each class drawn equally often) and 1 validation images with masks"));
  works(train + "plain");
  EXPECT_FALSE(get("balanced/model.safetensors") == get("plain/model.safetensors"));
}

TEST_F(Segmentation, ValidateCountsPixels) {
  EXPECT_THAT(works("hearth validate s.yaml"), AllOf(HasSubstr("train: 4 images with masks, 3 classes"),
                                                     HasSubstr("wall                 2048 pixels (50.00%)"),
                                                     HasSubstr("door                 1024 pixels (25.00%)")));
}

TEST_F(Segmentation, MistakesAreNamed) {
  refused("hearth train s.yaml model.num_classes=2", {"3 classes, but model.num_classes is 2"});
  refused("hearth train s.yaml segment.loss=[dise]", {"cross_entropy, dice, focal", "did you mean 'dice'"});
  refused("hearth train s.yaml data.scale=[1]", {"two factors in data.scale"});
  refused("hearth train s.yaml model.name=resnet18", {"data.kind=masks needs a segmentation model", "unet"});
  refused("hearth train s.yaml data.channels=1 data.mean=[0.5]", {"data.channels=3"});
  refused("hearth train s.yaml data.image_size=[16]", {"[width, height]"});
  put("set/train/masks/2.png", mask_of(7));
  refused("hearth train s.yaml train.epochs=2",
          {"the values 0, 1, 2, 7, but", "has 3 classes", "7 first occurs in set/train/masks/2.png",
           "data.class_numbers=[0,1,2]"});
  refused("hearth train s.yaml train.epochs=2 data.class_numbers=[0,1,2]",
          {"set/train/masks/2.png: 7 at x 0, y 0 is not a class", "data.unlabeled=7"});
  put("set/train/masks/2.png", mask_of(1, 8));
  refused("hearth train s.yaml train.epochs=2",
          {"set/train/masks/2.png: the mask has ", " has 32x32; export the mask again"});
  fs::remove(at("set/train/masks/2.png"));
  refused("hearth train s.yaml", {"set/train/images/2.png: expected its mask 2.png in set/train/masks"});
}

class Detection : public Program {
 protected:
  Detection() {
    for (int i = 0; i < 5; ++i) {
      const char* split = i == 4 ? "val" : "train";
      put(fmt::format("set/images/{}/{}.png", split, i), image_of(i));
      put(fmt::format("set/labels/{}/{}.txt", split, i), fmt::format("{} 0.5 0.5 0.4 0.6\n", i % 2));
    }
    put("set/data.yaml", "train: images/train\nval: images/val\nnames: [cup, plate]\n");
    put("d.yaml",
        "threads: 1\nmodel: {name: yolox_pico, num_classes: 2}\ndata: {kind: boxes, path: set, image_size: "
        "32}\n"
        "detect: {plain_epochs: 1, score: 0.0001}\ntrain: {epochs: 2, batch: 2}\noptimizer: {lr: 0.001}\n");
  }
};

TEST_F(Detection, TrainsEvaluatesAndPredicts) {
  const std::string said = works("hearth train d.yaml --out run");
  EXPECT_THAT(said, HasSubstr("4 training and 1 validation images, 4 boxes of 2 classes to learn from"));
  const std::string last = said.substr(said.rfind('\n', said.size() - 2) + 1);
  EXPECT_EQ(last.substr(0, 7), "mAP50: ") << said;
  EXPECT_THAT(works("hearth eval run"), HasSubstr(last.substr(0, last.size() - 1)));
  const std::string table = get("run/results.csv");
  EXPECT_THAT(table,
              AllOf(HasSubstr("epoch,time,train/loss,metrics/precision(B),metrics/recall(B),metrics/mAP50(B),"
                              "metrics/mAP50-95(B),val/loss,lr/pg0\n1,"),
                    HasSubstr("\n2,")));
  EXPECT_EQ(count_of(table, "\n"), 3U);
  EXPECT_THAT(get("run/report.html"), AllOf(HasSubstr("Average Precision"), HasSubstr("<td>plate</td>")));
  EXPECT_THAT(
      works("hearth predict run set/images/val set/images/train/0.png --out found detect.shown_score=0.0001"),
      AllOf(HasSubstr("found/4.png"), HasSubstr("found/0.png")));
  for (const char* name : {"4.png", "0.png", "labels/4.txt", "predictions.json", "images.json"})
    EXPECT_TRUE(has(std::string("found/") + name)) << name;
  EXPECT_THAT(get("found/images.json"), HasSubstr("\"file_name\": \"4.png\""));
  EXPECT_THAT(get("found/predictions.json"), HasSubstr("\"image_id\""));
}

TEST_F(Detection, BadLabelsAreRefusedOrLeftOut) {
  put("set/labels/train/2.txt", "0 0.5 0.5 0.4 0.6\n0 0.5 0.5 x 0.6\n");
  put("set/images/val/5.png", image_of(5));
  put("set/labels/val/5.txt", "7 0.5 0.5 0.4 0.6\n");
  refused("hearth validate d.yaml", {"set/labels/train/2.txt:2: expected a number, got 'x'"});
  const std::string train =
      "data.bad_records=skip leaves out 1 of 4 images with boxes: set/labels/train/2.txt:2: expected a "
      "number";
  const std::string held_out =
      "data.bad_records=skip leaves out 1 of 2 images with boxes: set/labels/val/5.txt:1: expected a class";
  EXPECT_THAT(
      works("hearth validate d.yaml data.bad_records=skip"),
      AllOf(HasSubstr("train: 3 images"), HasSubstr("note: " + train), HasSubstr("note: " + held_out)));
  EXPECT_THAT(works("hearth train d.yaml data.bad_records=skip train.epochs=1 --out run"),
              AllOf(HasSubstr("3 training and 1 validation images"), HasSubstr(train), HasSubstr(held_out)));
}

TEST_F(Detection, AReportOfManyLargeImagesStaysSmall) {
  // Noise, which compresses worse than any photograph.
  const std::string noise = image_of(0, {480, 640});
  for (int i = 0; i < 80; ++i) {
    put(fmt::format("set/images/val/n{}.png", i), noise);
    put(fmt::format("set/labels/val/n{}.txt", i), "1 0.5 0.5 0.4 0.6\n");
  }
  works("hearth train d.yaml train.epochs=1 --out run");
  const std::string report = get("run/report.html");
  EXPECT_GE(count_of(report, "<img alt='' src='data:image/jpeg;base64,"), 32U);
  EXPECT_LT(report.size(), 3U << 20);
}

TEST_F(Detection, LabelsThatLeadOutOfTheDataAreRefused) {
  put("elsewhere/images/secret.png", image_of(1));
  put("elsewhere/labels/secret.txt", "0 0.5 0.5 0.4 0.6\n");
  put("set/list.txt", "../elsewhere/images/secret.png\n");
  put("set/data.yaml", "train: images/train\nval: list.txt\nnames: [cup, plate]\n");
  for (const char* verb : {"train", "validate"})
    refused(fmt::format("hearth {} d.yaml --out a", verb),
            {"set/list.txt:1: ", "outside of the data's folder", "data.allow_outside=true"});
  EXPECT_THAT(works("hearth validate d.yaml data.allow_outside=true --out a"), HasSubstr("test: 1 images"));
}

TEST_F(Detection, LabelsOfOtherToolsAreFoundAndTheirRestIsNamed) {
  fs::remove(at("set/data.yaml"));
  std::string xml = "<annotations>";
  for (int i = 0; i < 5; ++i)
    xml += fmt::format(
        "<image name=\"{0}/{1}.png\" subset=\"{0}\"><box label=\"cup\" xtl=\"1\" ytl=\"1\" "
        "xbr=\"9\" ybr=\"9\"/><points label=\"cup\" points=\"1,1\"/></image>",
        i == 4 ? "val" : "train", i);
  put("set/annotations.xml", xml + "</annotations>");
  const std::string said = works("hearth validate d.yaml model.num_classes=1 --out a");
  EXPECT_THAT(said, AllOf(HasSubstr("train: 4 images, 1 classes"),
                          HasSubstr("skipped 5 labels of the kind 'points'")));
  EXPECT_THAT(works("hearth train d.yaml model.num_classes=1 train.epochs=1 --out run"),
              HasSubstr("4 training and 1 validation images, 4 boxes of 1 classes"));
}

TEST_F(Detection, BalanceDrawsRareClassesMoreOften) {
  put("set/labels/train/1.txt", "0 0.5 0.5 0.4 0.6\n");
  EXPECT_THAT(works("hearth train d.yaml data.balance=true --out balanced"),
              HasSubstr("4 training (each class drawn equally often) and 1 validation images, 4 boxes"));
  works("hearth train d.yaml --out plain");
  EXPECT_FALSE(get("balanced/model.safetensors") == get("plain/model.safetensors"));
}

TEST_F(Detection, ARunGoesOnAndItsTableToo) {
  works("hearth train d.yaml train.epochs=1 --out run");
  works("hearth train --resume --out run train.epochs=2");
  EXPECT_EQ(count_of(get("run/results.csv"), "\n"), 3U);
}

TEST_F(Detection, MistakesAreNamed) {
  refused("hearth train d.yaml model.num_classes=1 --out a",
          {"the data has 2 classes, but model.num_classes is 1"});
  refused("hearth train d.yaml data.image_size=40 --out a", {"multiples of 32", "data.image_size=32"});
  refused("hearth train d.yaml model.name=smallcnn --out a",
          {"data.kind=boxes needs a detection model", "yolox_s"});
  refused("hearth train d.yaml model.name=yolox_x --out a", {"yolox_"});
  refused("hearth train d.yaml data.kind=coco --out a", {"set"});
  put("set/labels/train/1.txt", "0 0.5 0.5 0.4\n");
  refused("hearth train d.yaml --out a", {"set/labels/train/1.txt:1"});
  put("set/labels/train/1.txt", "7 0.5 0.5 0.4 0.4\n");
  refused("hearth train d.yaml --out a", {"set/labels/train/1.txt:1"});
}

TEST_F(Program, PredictionsOfSameNamesAreRefused) {
  works("hearth train tiny.yaml --out run");
  refused("hearth predict run nothing", {"nothing"});
  fs::create_directories(at("empty"));
  refused("hearth predict run empty", {"there are no images (PNG, JPEG, WebP"});
}

}  // namespace
}  // namespace hearth
