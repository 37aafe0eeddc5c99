// A trained image model teaches another one: classification, segmentation and detection, and what goes wrong.
#include "cli/program.h"

namespace hearth {
namespace {

using testing::HasSubstr;

/// Runs that teach a recipe: student.yaml is that of the teacher unless a test changes it.
class DistillImages : public Program {
 protected:
  void train_teacher(const std::string& yaml) const {
    put("student.yaml", yaml +
                            "train: {steps: 6, batch: 8, log_every: 1, checkpoint_every: 3}\n"
                            "optimizer: {lr: 0.05}\nschedule: {name: constant}\nthreads: 1\nseed: 5\n");
    works("hearth train student.yaml --out teacher seed=6");
  }
  /// Returns the loss of a run's first step.
  double logged_loss(const std::string& run) const {
    const std::string log = get(run + "/trainer_log.jsonl"), key = "\"loss\":";
    return std::stod(log.substr(log.find(key) + key.size()));
  }
  static std::string student(const std::string& out, const std::string& more = "") {
    return "hearth train student.yaml distill.from=teacher --out " + out + " " + more;
  }
  /// Expects that a run that was stopped ends with the same weights, that the weights do not depend on the
  /// number of workers, and that the teacher changes them only through distill.weight. `model`: keys of the
  /// student without a teacher.
  void expect_same_bits(const std::string& model, const std::string& loss) const {
    const std::string keys = model + " " + loss;
    works(student("full", keys));
    works(student("parts", keys + " train.steps=3"));
    works("hearth train --resume --out parts train.steps=6");
    EXPECT_TRUE(get("full/model.safetensors") == get("parts/model.safetensors"));
    works(student("one", keys + " train.shards=2"));
    works(student("two", keys + " train.shards=2 devices=2"));
    EXPECT_TRUE(get("one/model.safetensors") == get("two/model.safetensors"));
    works(student("zero", keys + " distill.weight=0 train.steps=1"));
    works("hearth train student.yaml --out alone train.steps=1 " + model);
    EXPECT_NEAR(logged_loss("alone"), logged_loss("zero"), 1e-5);
    EXPECT_GT(std::abs(logged_loss("alone") - logged_loss("full")), 1e-3);
  }
  /// Expects that the weights of the run `full` need no teacher.
  void expect_teacher_is_not_needed() const {
    const std::string before = works("hearth eval full");
    fs::rename(at("teacher"), at("gone"));
    EXPECT_EQ(works("hearth eval full"), before);
    refused("hearth train --resume --out parts train.steps=7", {"distill.from", "teacher"});
    fs::rename(at("gone"), at("teacher"));
  }

  static constexpr const char* kClassifier =
      "model: {name: simplecnn}\ndata: {kind: shapes, image_size: 12, count: 70, val_count: 32}\n";
};

TEST_F(DistillImages, Classification) {
  train_teacher(kClassifier);
  expect_same_bits("model.name=smallcnn", "distill.temperature=2");
  expect_teacher_is_not_needed();
  fs::remove_all(at("teacher"));
  works("hearth export full --out full.onnx");
}

TEST_F(DistillImages, AStudentWithTheTeachersWeightsHasNothingToLearn) {
  train_teacher(kClassifier);
  for (const char* loss : {"forward", "reverse", "jsd"}) {
    works(student(loss, fmt::format("distill.loss={} distill.weight=1 init=teacher/model.safetensors "
                                    "train.steps=1",
                                    loss)));
    EXPECT_LT(std::abs(logged_loss(loss)), 1e-5);
  }
}

TEST_F(DistillImages, Segmentation) {
  train_teacher(
      "model: {name: unet, width: 4}\ndata: {kind: shapes, image_size: 32, count: 24, val_count: 8}\n");
  expect_same_bits("model.width=2", "distill.loss=jsd");
  expect_teacher_is_not_needed();
}

TEST_F(DistillImages, Detection) {
  train_teacher(
      "model: {name: yolox_nano}\ndata: {kind: shapes, image_size: 64, count: 16, val_count: 4}\n"
      "detect: {mosaic: 0}\n");
  expect_same_bits("train.batch=4", "distill.weight=0.9");
  refused(student("run", "model.name=retinanet_resnet50_fpn"),
          {"the teacher is yolox_nano", "anchors differ", "same family"});
}

TEST_F(DistillImages, TheFullModelTeachesItsPrunedCopy) {
  train_teacher(kClassifier);
  works("hearth prune teacher --method channels --flops 0.6 --multiple 1 --out small");
  works("hearth train small/config.yaml distill.from=teacher --out taught");
  works("hearth train small/config.yaml distill.from=teacher distill.weight=0 --out alone");
  EXPECT_FALSE(get("taught/model.safetensors") == get("alone/model.safetensors"));
  works("hearth prune taught --method channels --flops 0.8 --multiple 1 --out smaller");
  refused("hearth train student.yaml distill.from=taught --out run",
          {"channels were pruned", "model.widths"});
}

/// The weights of an auxiliary head, which exists only in training, are not used.
TEST_F(DistillImages, ATeacherWithAnAuxiliaryHead) {
  train_teacher(
      "model: {name: fcn_resnet50, width: 4}\n"
      "data: {kind: shapes, image_size: 32, count: 16, val_count: 4}\n");
  works(student("run", "model.name=unet distill.temperature=3"));
}

TEST_F(DistillImages, OtherDetectors) {
  for (const char* model : {"retinanet_resnet50_fpn", "fcos_resnet50_fpn"}) {
    train_teacher(
        fmt::format("model: {{name: {}, width: 8}}\n"
                    "data: {{kind: shapes, image_size: 64, count: 8, val_count: 2}}\n"
                    "detect: {{mosaic: 0}}\n",
                    model));
    works(student("run", "train.batch=2 train.steps=1 distill.weight=0"));
    works("hearth train student.yaml --out alone train.batch=2 train.steps=1");
    EXPECT_NEAR(logged_loss("alone"), logged_loss("run"), 1e-5) << model;
    works(student("taught", "train.batch=2 train.steps=1"));
    EXPECT_GT(std::abs(logged_loss("alone") - logged_loss("taught")), 1e-3) << model;
    for (const char* folder : {"teacher", "run", "alone", "taught"}) fs::remove_all(at(folder));
  }
}

TEST_F(DistillImages, APlanIncludesTheTeacher) {
  train_teacher(kClassifier);
  const std::string plan = "hearth plan student.yaml model.name=mlp";
  EXPECT_NE(works(plan), works(plan + " distill.from=teacher"));
}

TEST_F(DistillImages, TheStudentAdoptsTheTeachersNormalization) {
  train_teacher(std::string(kClassifier));
  const std::string other = "'data.mean=[0.2]' 'data.std=[0.3]' ";
  EXPECT_THAT(works(student("run", other)), HasSubstr("images are normalized by the teacher's mean"));
  works(student("same"));
  EXPECT_TRUE(get("run/model.safetensors") == get("same/model.safetensors"));
  refused(student("given", other + "data.normalize=given"),
          {"the teacher was trained with data.mean=[", "but the recipe has data.mean=[0.2]"});
}

TEST_F(DistillImages, OtherTeachersAreRefused) {
  train_teacher(kClassifier);
  refused(student("run", "data.image_size=16"),
          {"the teacher was trained on images of 12x12x3, but the recipe's are 16x16x3"});
  refused(student("run", "model.num_classes=12"), {"the teacher has 10 classes, but the recipe has 12"});
  refused(student("run", "model.name=unet model.width=4 data.image_size=32"),
          {"the teacher was trained for task classify, but the recipe's task is segment"});
  refused(student("run", "distill.top_k=3"), {"distill.top_k is for teachers of language models"});
  refused(student("run", "distill.quantize=int8"), {"distill.quantize is for teachers of language models"});
  refused("hearth train student.yaml --out run distill.from=student.yaml",
          {"there is no run in 'student.yaml'"});
  refused("hearth train student.yaml --out run distill.from=none", {"there is no run in 'none'"});
  refused("hearth distill capture teacher --recipe student.yaml --out t.kd", {"language model"});
  std::string config = get("teacher/config.yaml");
  config.replace(config.find("\"circle\""), 8, "\"bubble\"");
  put("teacher/config.yaml", config);
  refused(student("run"), {"the teacher's classes (", "differ from the recipe's"});
  fs::remove(at("teacher/model.safetensors"));
  fs::remove_all(at("teacher/best.safetensors"));
  refused(student("run"), {"the run has no weights yet", "hearth resume teacher"});
  EXPECT_FALSE(has("run"));
}

}  // namespace
}  // namespace hearth
