//! A locked function below twenty-five plain ones compiles on a task with the default recursion limit.

#[macro_use]
mod nested;

chain!(plain p1 p2 p3 p4 p5 p6 p7 p8 p9 p10 p11 p12
    p13 p14 p15 p16 p17 p18 p19 p20 p21 p22 p23 p24 p25 f1);
chain!(locked f1 innermost);
spawn!(p1);
