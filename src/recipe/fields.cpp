#include "recipe/fields.h"

#include <fmt/ranges.h>

#include "recipe/field_kinds.h"

namespace hearth::recipe {
namespace {

void add_run_fields(std::vector<Field>& fields) {
  const auto key = top_level(fields);
  key("seed", "seed of initial weights, shuffling, augmentation and dropout", &Recipe::seed);
  key("threads", "CPU threads; 0: one for each core", &Recipe::threads, Whole{0, 1024});
  key("device",
      "cpu; gpu: the first GPU; gpu:0 or gpu:0000:03:00.0: that one (hearth doctor lists them); emulated: "
      "GPU "
      "kernels run on the CPU, for tests",
      &Recipe::device, Device())
      .advice = "device=gpu for the first AMD or NVIDIA GPU";
  key("reserve", "GPU memory left free for the desktop and other programs, like 1GiB", &Recipe::reserve,
      Bytes{"a size like 512MiB"});
  key("devices", "devices that share each update; each has a worker process", &Recipe::devices, Whole{1, 64});
  key("parallel",
      "data: each device holds the whole model; zero1: optimizer state is split over devices; sharded: "
      "weights "
      "too (FSDP); pipeline: each device holds some of the layers",
      &Recipe::parallel);
  key("supervise", "restart a run that crashes or hangs from its newest checkpoint", &Recipe::supervise);
  key("self_test",
      "when a GPU's kernels are tested: once (the result is kept), always (before each run), never",
      &Recipe::self_test);
  key("record",
      "whether a GPU's steps are recorded as graphs and replayed: auto (where the first replay gives the "
      "same bits as queued work), always, never",
      &Recipe::record);
  key("precision", "fp32, bf16, or fp16 with dynamic loss scaling", &Recipe::precision);
  key("memory", "budget of activations, gradients and workspaces, met by recompute, like 10GiB; 0: none",
      &Recipe::memory, Bytes{"a size like 20GiB, or 0 for no budget"});
  key("init", "file with initial weights: safetensors, or .pt, .pth and .bin of torch.save", &Recipe::init);
}

void add_pass_fields(std::vector<Field>& fields) {
  section(fields, "passes", &Recipe::passes)(
      "off", "passes to switch off (hearth dump --list names them); also winograd", &Passes::off);
}

void add_offload_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "offload", &Recipe::offload);
  key("states", "keep optimizer state, accumulated gradients and moving averages in host memory",
      &Offload::states);
  key("weights", "keep weights in host memory", &Offload::weights);
  key("activations", "with a budget (memory): saved activations may be kept in host memory",
      &Offload::activations);
}

void add_exchange_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "exchange", &Recipe::exchange);
  key("transport",
      "what sums gradients over devices; host: host memory, in one fixed order; nccl: NCCL or RCCL, if it "
      "passes a test, in its own order",
      &Exchange::transport);
  key("compress",
      "compression of the gradients that devices send: none; bf16; powersgd (rank 4); what it leaves out is "
      "added to the next update",
      &Exchange::compress);
  key("local_steps", "DiLoCo: updates that each device makes alone between outer steps; 1: off",
      &Exchange::local_steps, Whole{1, 1 << 20});
  key("outer_lr", "DiLoCo: learning rate of the outer step", &Exchange::outer_lr, Real{0, 1e6});
  key("outer_momentum", "DiLoCo: Nesterov momentum of the outer step", &Exchange::outer_momentum, Real{0, 1});
}

void add_model_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "model", &Recipe::model);
  key("name", "{}", &Model::name, Named{", or a language model's folder,"}).advice =
      "model=simplecnn, or model=./FOLDER with a config.json";
  key("path",
      "language model: folder with config.json, weights and tokenizer; model that makes pictures: folder of "
      "diffusers, or file of weights",
      &Model::path);
  key("config", "new language model, or new model that makes pictures: its config.json", &Model::config);
  key("autoencoder",
      "model that makes pictures: folder of the autoencoder of its latents (diffusers' config.json and "
      "weights); empty: vae in model.path; where there is neither, a model of classes works on pixels",
      &Model::autoencoder);
  key("tokenizer",
      "language model: folder or file of the tokenizer; empty: the one beside the model or its config",
      &Model::tokenizer);
  key("num_classes", "images: number of classes; 0: as many as the data has", &Model::num_classes,
      Whole{0, 100000});
  key("class_names",
      "images: names of the classes, in the order of their numbers, like [cat, dog]; empty: those of the "
      "data, which a run keeps here",
      &Model::class_names);
  key("hidden", "mlp: widths of the hidden layers", &Model::hidden);
  key("dropout", "mlp, mobilenet, efficientnet: dropout probability; fcn, deeplab: 0 switches theirs off",
      &Model::dropout, Real{0, 1});
  key("width",
      "resnet, mobilenet, efficientnet, retinanet, fcos: channels of the stem; unet: of its first level; 0: "
      "the model's own",
      &Model::width, Whole{0, 4096});
  key("frozen_norm", "retinanet, fcos: the backbone's batch norms stay as init has them",
      &Model::frozen_norm);
}

void add_adapter_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "adapter", &Recipe::adapter);
  key("name", "lora: train low-rank matrices beside the frozen weights; empty: train all weights",
      &Adapter::name);
  key("path", "PEFT adapter to start from; its rank, alpha, rslora and modules replace these keys",
      &Adapter::path);
  key("rank", "rank of the low-rank matrices (r in PEFT)", &Adapter::rank, Whole{1, 1 << 16});
  key("alpha", "the adapter's output is scaled by alpha / rank", &Adapter::alpha, Real{0, 1e6});
  key("dropout", "dropout probability of the adapter's inputs", &Adapter::dropout, Real{0, 1});
  key("rslora", "scale by alpha / sqrt(rank) instead", &Adapter::rslora);
  key("targets", "linear layers that get an adapter, like [q_proj, v_proj]; all-linear: every one",
      &Adapter::targets, OneOrMore());
  key("quantize", "nf4 (QLoRA), int8 or fp8: how frozen linear layers are stored; empty: unquantized",
      &Adapter::quantize, Named());
  key("modules_to_save", "modules that are trained in full, like [lm_head]", &Adapter::modules_to_save);
}

void add_image_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "data", &Recipe::data);
  key("kind",
      "images: folder (a folder per class), idx (MNIST), cifar10, shapes (generated), tensors (safetensors); "
      "masks (pictures with masks); boxes (any of these, found by looking), coco, voc, yolo, label_studio, "
      "cvat, labelme, csv, createml; text; "
      "captions (pictures with captions); kohya (caches of sd-scripts)",
      &Data::kind, Named());
  key("path", "images: folder of the dataset; text: a .txt, .jsonl or .json file", &Data::path);
  key("allow_outside",
      "boxes, captions: true: read images outside of data.path that labels name, by absolute paths, by ../ "
      "or "
      "through links; false: refuse them",
      &Data::allow_outside);
  key("image_size", "pixels that images are resized to: a square's side, or [width, height]",
      &Data::image_size, Sides{4, 4096});
  key("channels", "1: grayscale, 3: RGB", &Data::channels, Whole{1, 3});
  key("count", "shapes: training images", &Data::count, Whole{1});
  key("val_count", "shapes: validation images", &Data::val_count, Whole{1});
  key("shuffle", "shuffle in each epoch", &Data::shuffle);
  key("balance",
      "images: draw each class equally often (of several in an image, the rarest counts); an epoch stays as "
      "long, repeats images of rare classes and leaves out some of frequent ones",
      &Data::balance);
  key("threads", "threads that decode images ahead; 0: none", &Data::threads, Whole{0, 64});
  key("crop_padding", "random crop after padding by this many pixels", &Data::crop_padding, Whole{0, 1024});
  key("flip", "random horizontal flip", &Data::flip);
  key("jitter", "random brightness, contrast and saturation, by up to this fraction", &Data::jitter,
      Real{0, 1});
  key("normalize",
      "what images are normalized by; auto: mean and std of the weights in init, where their config.json "
      "(timm) has them, else data.mean and data.std; given: data.mean and data.std; imagenet; half (0.5 and "
      "0.5); dataset: measured on at most 4096 training images",
      &Data::normalize);
  key("mean", "mean of each channel, of pixels from 0 to 1; images are normalized by it", &Data::mean);
  key("std", "standard deviation of each channel", &Data::std);
  key("resize",
      "masks: resize pictures to data.image_size; false: train on parts of that size, evaluate by sliding "
      "windows",
      &Data::resize);
  key("scale", "masks: scale training pictures by a random factor, like [0.5, 2]", &Data::scale);
  key("classes",
      "masks: table of classes, a line NAME or NAME,RED,GREEN,BLUE each; empty: classes.csv, class_dict.csv "
      "or "
      "classes.txt in data.path",
      &Data::classes);
  key("keep_pictures",
      "folder, masks, boxes: memory for decoded pictures, which are then read once, like 2GiB; devices share "
      "it",
      &Data::keep_pictures, Bytes{"a size like 2GiB, or 0"});
  key("exif",
      "images: orientation in EXIF data (or of TIFF and AVIF): apply (turn images upright), or ignore (keep "
      "the "
      "pixels as stored)",
      &Data::exif);
  key("unlabeled",
      "masks: ignore pixels of this value, and of 255, in the loss and the metrics (ignore_index); auto: "
      "ignore "
      "255 alone, unless it is a class; none: ignore no pixel",
      &Data::unlabeled);
  key("class_numbers",
      "masks: the value of each class in the files, like [0, 255]; empty: 0, 1, 2, ..., or decided from the "
      "values of all masks",
      &Data::class_numbers);
  key("drop_last",
      "images: leave out a last micro-batch of an epoch that is smaller than train.batch; auto: if the model "
      "cannot train on it (DeepLab: a single image)",
      &Data::drop_last);
}

void add_text_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "data", &Recipe::data);
  key("context", "text: tokens in a row (sequence length)", &Data::context, Whole{1, 1 << 24});
  key("val_path", "text: validation file; empty: the end of data.path", &Data::val_path);
  key("val_share",
      "text, captions, folder: fraction of data.path that is held out for validation; of a folder per class, "
      "where no folder or list is held out",
      &Data::val_share, Real{0, 1});
  key("format",
      "text: format of records: text, prompt_completion, alpaca, sharegpt, openai, preference; "
      "detect: by their fields",
      &Data::format);
  key("fields", "text: names of fields in the data, like [prompt=question,completion=answer]", &Data::fields);
  key("template", "text: chat template: {} or a file; empty: the tokenizer's", &Data::template_);
  key("date",
      "text: the date that chat templates see, like 2026-11-24; empty: the day on which the run starts",
      &Data::date);
  key("variables", "text: variables for the chat template, like [enable_thinking=false]", &Data::variables);
  key("bad_records",
      "records, images, masks and labels of objects that cannot be read: refuse (end the run), or skip "
      "(leave "
      "them out, labels with their image, and count them)",
      &Data::bad_records);
  key("train_on_prompt", "text: compute the loss on prompts too, not on answers alone",
      &Data::train_on_prompt);
  key("train_on_generation_prompt",
      "text: compute the loss on an empty thinking block too, which the chat template puts into the prompt "
      "for "
      "an answer",
      &Data::train_on_generation_prompt);
  key("packing", "text: put several samples into a row; false: one each, rows of similar length together",
      &Data::packing);
  key("overlong",
      "text: samples longer than a row: truncate, drop, split, refuse; auto: split plain text, truncate "
      "records",
      &Data::overlong);
  key("document", "text: what one document of a .txt file is: file, paragraph or line", &Data::document);
  key("cache", "folder for cached tokens, or latents and embeddings; empty: ~/.cache/hearth", &Data::cache);
}

void add_train_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "train", &Recipe::train);
  key("steps", "updates in total; 0: as many as train.epochs has", &Train::steps, Whole{0});
  key("epochs", "passes over the training data", &Train::epochs, Whole{1});
  key("objective",
      "cross_entropy; dpo (direct preference optimization); of models that make pictures: flow (flow "
      "matching), epsilon, v",
      &Train::objective);
  key("batch", "micro-batch: images, or rows of tokens, in one forward and backward pass", &Train::batch,
      Whole{1, 1 << 20});
  key("accumulate", "gradient accumulation: micro-batches per update, over all devices", &Train::accumulate,
      Whole{1, 1 << 20});
  key("shards",
      "parts of an update that are summed separately: up to so many devices give the same bits; 0: devices",
      &Train::shards, Whole{0, 64});
  key("checkpoint_every", "updates between checkpoints", &Train::checkpoint_every, Whole{1});
  key("memory_checkpoint_every",
      "seconds between snapshots in memory, which an automatic restart resumes from; 0: none",
      &Train::memory_checkpoint_every, Real{0, 1e6});
  key("keep_checkpoints", "checkpoints to keep", &Train::keep_checkpoints, Whole{1, 1000});
  key("eval_every", "updates between evaluations; 0: once per epoch", &Train::eval_every, Whole{0});
  key("eval_on_start", "also evaluate before the first update", &Train::eval_on_start);
  key("log_every", "updates between log lines", &Train::log_every, Whole{1});
  key("label_smoothing", "probability that is spread over all classes", &Train::label_smoothing, Real{0, 1});
  key("clip_norm", "clip gradients to this global norm; 0: off", &Train::clip_norm, Real{0, 1e30});
  key("ema",
      "decay of the exponential moving average of weights and running statistics, like 0.999, less in the "
      "first steps; 0: off",
      &Train::ema, Real{0, 1});
  key("early_stop", "stop after so many evaluations without improvement; 0: off", &Train::early_stop,
      Whole{0});
  key("freeze",
      "modules whose weights do not train, by the start of their names, like [encoder, layer1]; their batch "
      "norms use their running statistics",
      &Train::freeze, OneOrMore());
}

void add_segment_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "segment", &Recipe::segment);
  key("loss", "segmentation: cross_entropy, dice, focal, or a list of them, which are added up",
      &Segment::loss, OneOrMore());
  key("class_weights",
      "segmentation: weights of classes in the loss; given: those of segment.weights; median_frequency: "
      "computed from the training masks",
      &Segment::class_weights);
  key("weights", "segmentation: a weight for each class", &Segment::weights);
}

void add_detect_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "detect", &Recipe::detect);
  key("mosaic", "detection: probability that a training picture is put together of four", &Detect::mosaic,
      Share());
  key("mixup", "detection: probability that such a picture is mixed with another", &Detect::mixup, Share());
  key("degrees", "detection: random rotation, up to so many degrees either way", &Detect::degrees,
      Real{0, 180});
  key("translate", "detection: random shift, up to this share of the picture", &Detect::translate,
      Real{0, 1});
  key("shear", "detection: random shear, up to so many degrees either way", &Detect::shear, Real{0, 45});
  key("scale", "detection: random scale, from and to", &Detect::scale);
  key("hsv", "detection: random hue, saturation and brightness", &Detect::hsv);
  key("plain_epochs", "detection: the last epochs, in which pictures are only flipped", &Detect::plain_epochs,
      Whole{0});
  key("sizes",
      "detection: sides that training pictures have, another every ten updates, like [288, 320, 352]",
      &Detect::sizes);
  key("max_boxes", "detection: boxes of a training picture; more are left out", &Detect::max_boxes,
      Whole{1, 10000});
  key("score", "detection: predictions below this are left out of evaluations", &Detect::score, Real{0, 1});
  key("nms", "detection: of boxes of a class that overlap more than this (IoU) the best is kept",
      &Detect::nms, Share());
  key("max_detections", "detection: predictions that are kept of a picture", &Detect::max_detections,
      Whole{1, 10000});
  key("shown_score", "detection: predictions below this are not drawn", &Detect::shown_score, Real{0, 1});
}

void add_bad_step_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "bad_steps", &Recipe::bad_steps);
  key("most", "updates that may be left out, with their samples, because loss or gradients are not finite",
      &BadSteps::most, Whole{0, 1000000});
  key("z_score", "also leave out an update whose loss is so many standard deviations above the mean; 0: off",
      &BadSteps::z_score, Real{0, 1e6});
}

void add_governor_fields(std::vector<Field>& fields) {
  section(fields, "thermal", &Recipe::thermal)("limit",
                                               "highest temperature of a GPU's junction in Celsius, held by "
                                               "gaps between steps and, where they are not "
                                               "enough, by pauses; 0: 5 below the GPU's own limit",
                                               &Thermal::limit, Real{0, 200});
  section(fields, "power", &Recipe::power)(
      "limit", "highest mean power of each GPU in Watts, held by gaps between steps; 0: none", &Power::limit,
      Real{0, 5000});
}

void add_dpo_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "dpo", &Recipe::dpo);
  key("beta", "strength of the penalty for deviating from the starting model", &Dpo::beta, Real{1e-6, 1e6});
  key("label_smoothing", "assumed fraction of pairs that are labeled the wrong way round",
      &Dpo::label_smoothing, Real{0, 0.5});
}

void add_diffuse_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "diffuse", &Recipe::diffuse);
  key("sampling",
      "flow: how noise levels are drawn: uniform; sigmoid of a normal; shift or flux_shift (by the number of "
      "tokens) moves that towards noise; logit_normal; mode",
      &Diffuse::sampling);
  key("mean", "flow: mean of the normal of logit_normal", &Diffuse::mean, Real{-10, 10});
  key("std", "flow: standard deviation of the normal under the sigmoid", &Diffuse::std, Real{0, 10});
  key("shift", "flow: the shift of sampling=shift", &Diffuse::shift, Real{0.01, 100});
  key("mode_scale", "flow: the scale of sampling=mode", &Diffuse::mode_scale, Real{-1, 1.75});
  key("weighting", "weights of the loss by the noise: none, sigma_sqrt, cosmap, min_snr (with epsilon and v)",
      &Diffuse::weighting);
  key("min_snr", "gamma of weighting=min_snr", &Diffuse::min_snr, Real{0.01, 1000});
  key("dropout", "share of training pictures that lose their class or caption", &Diffuse::dropout, Share());
  key("trigger", "a word that is put before captions that do not have it", &Diffuse::trigger);
  key("prior", "folder of pictures with captions that the model must go on making (prior preservation)",
      &Diffuse::prior);
  key("prior_weight", "weight of their loss", &Diffuse::prior_weight, Real{0, 100});
  key("text_tokens", "tokens of a caption", &Diffuse::text_tokens, Whole{1, 4096});
  key("val_pictures", "held-out pictures whose loss is measured, at fixed noise", &Diffuse::val_pictures,
      Whole{1, 100000});
  key("prompts",
      "what evaluations make pictures of, like [a red house]; empty: the classes or captions of the data",
      &Diffuse::prompts, OneOrMore());
  key("steps", "steps of the sampler that makes these", &Diffuse::steps, Whole{1, 1000});
  key("guidance", "guidance of these", &Diffuse::guidance, Real{0, 100});
  key("judged",
      "classes: pictures that the last evaluation makes, of which a classifier, trained on the same data, "
      "says how many show the class that was asked for",
      &Diffuse::judged, Whole{0, 100000});
}

void add_optimizer_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "optimizer", &Recipe::optimizer);
  key("name", "{}", &Optimizer::name, Named());
  key("lr", "learning rate", &Optimizer::lr, Real{0, 1e6});
  key("momentum", "sgd, muon: momentum", &Optimizer::momentum, Real{0, 1});
  key("nesterov", "sgd, muon: Nesterov momentum", &Optimizer::nesterov);
  key("in_backward",
      "update each weight once its gradient is there, so that gradients need no memory; with "
      "train.accumulate=1 and train.clip_norm=0",
      &Optimizer::in_backward);
  key("weight_decay", "L2 regularization for sgd, decoupled weight decay for the others",
      &Optimizer::weight_decay, Real{0, 1e6});
  key("beta1", "adamw, lion: decay of the first moment", &Optimizer::beta1, Real{0, 1});
  key("beta2", "adamw: decay of the second moment; lion: 0.99 is usual", &Optimizer::beta2, Real{0, 1});
  key("eps", "adamw: added to the denominator", &Optimizer::eps, Real{0, 1});
  key("rates",
      "factors of the learning rate for modules, by the start of their weights' names, like [encoder=0.1]; "
      "the first that fits holds",
      &Optimizer::rates, OneOrMore());
}

void add_schedule_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "schedule", &Recipe::schedule);
  key("name", "learning rate schedule: constant, step, cosine, onecycle", &Schedule::name);
  key("warmup_steps", "updates of linear warmup", &Schedule::warmup_steps, Whole{0});
  key("step_size", "step: updates between drops", &Schedule::step_size, Whole{1});
  key("gamma", "step: factor of each drop", &Schedule::gamma, Real{0, 1e6});
  key("min_lr", "cosine: final learning rate", &Schedule::min_lr, Real{0, 1e6});
}

}  // namespace

const std::vector<Field>& recipe_fields() {
  static const std::vector<Field> all = [] {
    std::vector<Field> fields;
    for (const auto add :
         {add_run_fields, add_pass_fields, add_offload_fields, add_exchange_fields, add_model_fields,
          add_adapter_fields, add_image_fields, add_text_fields, add_train_fields, add_segment_fields,
          add_detect_fields, add_bad_step_fields, add_governor_fields, add_dpo_fields, add_diffuse_fields,
          add_optimizer_fields, add_schedule_fields})
      add(fields);
    return fields;
  }();
  return all;
}

std::string doc_of(const Field& field, const Choices& choices) {
  const size_t at = field.doc.find(kNamesHere);
  if (at == std::string::npos) return field.doc;
  return fmt::format("{}{}{}", field.doc.substr(0, at), fmt::join(choices.of(field.key), ", "),
                     field.doc.substr(at + kNamesHere.size()));
}

}  // namespace hearth::recipe
